//! drover-testkit: what the test suites share.
