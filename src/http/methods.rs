//! Which methods a route takes.

use axum::routing::MethodFilter;
use hyper::Method;

/// Methods of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Methods {
    /// GET, and HEAD with it.
    Get,
    /// PUT and POST, which Nomad takes as the same.
    Put,
    /// PUT alone.
    OnlyPut,
    /// POST alone.
    OnlyPost,
    Delete,
    /// Whatever Nomad takes anywhere.
    Any,
}

impl Methods {
    /// What takes them in a table of routes.
    pub(super) fn filter(self) -> MethodFilter {
        let put = MethodFilter::PUT.or(MethodFilter::POST);
        match self {
            Self::Get => MethodFilter::GET,
            Self::Put => put,
            Self::OnlyPut => MethodFilter::PUT,
            Self::OnlyPost => MethodFilter::POST,
            Self::Delete => MethodFilter::DELETE,
            Self::Any => put.or(MethodFilter::GET).or(MethodFilter::DELETE),
        }
    }

    /// Whether a request with this method is one of them.
    pub(super) fn takes(self, method: &Method) -> bool {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let puts = matches!(*method, Method::PUT | Method::POST);
        match self {
            Self::Get => reads,
            Self::Put => puts,
            Self::OnlyPut => *method == Method::PUT,
            Self::OnlyPost => *method == Method::POST,
            Self::Delete => *method == Method::DELETE,
            Self::Any => reads || puts || *method == Method::DELETE,
        }
    }

    /// How lists of routes name them.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT, POST",
            Self::OnlyPut => "PUT",
            Self::OnlyPost => "POST",
            Self::Delete => "DELETE",
            Self::Any => "any",
        }
    }
}
