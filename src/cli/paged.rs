//! Lists that come in pages: which part is requested, and where the next page begins.

use super::client::{Client, Reply};
use super::out::Out;
use super::show::{Format, next_page};
use anyhow::Result;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

/// Flags of lists.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Paged {
    /// Only those that this expression holds for
    #[arg(long, value_name = "EXPR")]
    filter: Option<String>,
    /// How many in one page
    #[arg(long, value_name = "N")]
    per_page: Option<u32>,
    /// Where the page begins
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
}

/// A page of a list.
pub(super) struct ListPage(Reply);

impl Paged {
    /// Requests the page; `more` are other parameters, of which empty ones are left out.
    pub(super) async fn of(
        &self,
        client: &Client,
        path: &str,
        more: &[(&str, &str)],
    ) -> Result<ListPage> {
        let per_page = self.per_page.map(|n| n.to_string());
        let given = [
            ("filter", &self.filter),
            ("per_page", &per_page),
            ("next_token", &self.page_token),
        ];
        let own = given
            .iter()
            .filter_map(|(key, value)| Some((*key, value.as_deref()?)));
        let set = more.iter().copied().filter(|(_, value)| !value.is_empty());
        let query: Vec<(&str, &str)> = set.chain(own).collect();
        client.get(path, &query).await.map(ListPage)
    }
}

impl ListPage {
    /// Its rows, to be passed on as they are.
    pub(super) fn json(&self) -> Result<Json> {
        self.0.json()
    }

    /// Its rows.
    pub(super) fn rows<T: DeserializeOwned>(&self) -> Result<Vec<T>> {
        self.0.read()
    }

    /// Its rows, to be shown as text; none where they were printed in the form that the user named.
    pub(super) fn take<T>(&self, format: &Format, out: &Out) -> Result<Option<Vec<T>>>
    where
        T: DeserializeOwned,
    {
        format.take(&self.0, out)
    }

    /// Prints how to request the next page, if there is one.
    pub(super) fn report_next(&self, out: &Out) {
        let next = &self.0.next_token;
        if !next.is_empty() {
            out.line(&next_page(std::env::args(), next));
        }
    }
}
