//! drover-events: the language of the cluster's history.
