"""The database backend: Django's for PostgreSQL, with a cheaper look at pooled connections."""
