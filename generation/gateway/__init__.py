"""Reads token logs and writes them to clients. Holds no state worth saving: any web process can go
on where another stopped, from the client's cursor."""
