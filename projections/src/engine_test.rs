//! Tests of the engine as a whole, on tables of its own.
