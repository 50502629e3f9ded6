//! The list of nodes that is kept rendered.

use drover_events::model::Node;
use drover_projections::key::KeyBuf;
use drover_projections::lists::List;
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::node_states::NodeStates;
use drover_projections::tables::nodes::{self, Nodes};
use drover_projections::view::View;
use drover_projections::{Id, Key, Prefix, StorageError, Table};

use super::{NodeFields, stub};
use crate::http::ready::{self, Ready};

/// `/v1/nodes`.
pub(super) struct NodeList;

impl List for NodeList {
    type Table = Nodes;
    const BESIDE: &'static [u16] = &[NodeStates::ID];

    fn order(row: &Node) -> KeyBuf {
        Self::place("", &PageToken::Id(row.id.clone()))
    }

    fn render(view: &View, row: &Node, out: &mut Vec<u8>) -> Result<(), StorageError> {
        let state = view.get::<NodeStates>(row.id.as_str())?.unwrap_or_default();
        ready::write(
            out,
            &stub(nodes::join(row.clone(), state), NodeFields::default()),
        )
    }
}

impl Ready for NodeList {
    const TOKEN: TokenKind = TokenKind::Id;
    const SPACED: bool = false;

    fn place(_namespace: &str, token: &PageToken) -> KeyBuf {
        match token {
            PageToken::Id(id) => Prefix::new().id(id).as_bytes().into(),
            _ => KeyBuf::new(),
        }
    }

    fn token(place: &[u8]) -> Option<PageToken> {
        Id::from_bytes(place)
            .ok()
            .map(|id| PageToken::Id(id.into_string()))
    }
}
