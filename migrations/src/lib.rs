//! drover-migrations: how old events and old tables become today's.
