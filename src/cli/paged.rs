//! Lists that come in pages: what of them is asked for, and where the next page begins.

use super::client::Client;
use super::out::Out;
use super::show::next_page;
use anyhow::Result;
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
pub(super) struct Page {
    /// Its rows.
    pub(super) rows: Json,
    next: String,
}

impl Paged {
    /// Asks for the page; `more` are other parameters, those that say nothing are left out.
    pub(super) async fn of(
        &self,
        client: &Client,
        path: &str,
        more: &[(&str, &str)],
    ) -> Result<Page> {
        let per_page = self.per_page.map(|n| n.to_string());
        let given = [
            ("filter", &self.filter),
            ("per_page", &per_page),
            ("next_token", &self.page_token),
        ];
        let own = given
            .iter()
            .filter_map(|(key, value)| Some((*key, value.as_deref()?)));
        let said = more.iter().copied().filter(|(_, value)| !value.is_empty());
        let query: Vec<(&str, &str)> = said.chain(own).collect();
        let reply = client.get(path, &query).await?;
        Ok(Page {
            rows: reply.json()?,
            next: reply.next_token,
        })
    }
}

impl Page {
    /// Whether there is nothing on it.
    pub(super) fn is_empty(&self) -> bool {
        self.rows().is_empty()
    }

    /// Its rows, one by one.
    pub(super) fn rows(&self) -> &[Json] {
        self.rows.as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// Says how the next page is asked for, if there is one.
    pub(super) fn tell_next(&self, out: &Out) {
        if !self.next.is_empty() {
            out.line(&next_page(std::env::args(), &self.next));
        }
    }
}
