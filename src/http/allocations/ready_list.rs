//! The list of allocations that is kept rendered.

use drover_projections::key::KeyBuf;
use drover_projections::lists::List;
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::allocs::{AllocRow, Allocs};
use drover_projections::view::View;
use drover_projections::{Id, Key, Prefix, StorageError};

use super::stub;
use crate::http::ready::{self, Ready};

/// `/v1/allocations`.
pub(super) struct AllocationList;

impl List for AllocationList {
    type Table = Allocs;

    fn order(row: &AllocRow) -> KeyBuf {
        let token = PageToken::IndexId(row.alloc.create_index, row.alloc.id.clone());
        Self::place(&row.alloc.namespace, &token)
    }

    fn render(_view: &View, row: &AllocRow, out: &mut Vec<u8>) -> Result<(), StorageError> {
        let row = row.clone();
        let mut stub = stub(row.alloc, row.job_type, row.job_version);
        stub.allocated_resources = None;
        ready::write(out, &stub)
    }
}

impl Ready for AllocationList {
    const TOKEN: TokenKind = TokenKind::IndexId;
    const SPACED: bool = true;

    fn place(namespace: &str, token: &PageToken) -> KeyBuf {
        match token {
            PageToken::IndexId(index, id) => Prefix::new()
                .str(namespace)
                .u64(*index)
                .id(id)
                .as_bytes()
                .into(),
            _ => KeyBuf::new(),
        }
    }

    fn token(place: &[u8]) -> Option<PageToken> {
        let (_, index, id) = <(String, u64, Id)>::from_bytes(place).ok()?;
        Some(PageToken::IndexId(index, id.into_string()))
    }
}
