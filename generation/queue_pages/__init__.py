"""The admin's live page of queues, and the pages that ask before something is done to one."""
