//! The tree of a running agent's log, and its events, as they are fetched in tiles
//! (C2SP tlog-tiles).

use crate::cli::client::{Client, Reply, is_status};
use crate::cli::show::counted;
use crate::log::{Hash, leaf_hash};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};

/// Hashes in a whole tile.
pub(in crate::cli) const TILE: u64 = 256;
/// The level of the tree at which a whole tile of leaves is one hash.
pub(in crate::cli) const BLOCK_LEVEL: u32 = TILE.trailing_zeros();
/// The status of what was dropped.
const GONE: u16 = 410;
/// Tiles requested at once.
pub(in crate::cli) const AHEAD: usize = 8;

/// `<level>/<number>[.p/<width>]`, as tiles are named.
fn tile_path(level: u32, number: u64, width: u64) -> String {
    let mut groups = vec![format!("{:03}", number % 1000)];
    let mut rest = number / 1000;
    while rest > 0 {
        groups.push(format!("x{:03}", rest % 1000));
        rest /= 1000;
    }
    groups.reverse();
    let part = match width {
        TILE => String::new(),
        width => format!(".p/{width}"),
    };
    format!("/v1/log/tile/{level}/{}{part}", groups.join("/"))
}

/// The hashes of a tile; none of what was dropped.
async fn tile(client: &Client, level: u32, number: u64, width: u64) -> Result<Option<Vec<Hash>>> {
    let path = tile_path(level, number, width);
    let Some(bytes) =
        kept(client.get(&path, &[]).await).with_context(|| format!("Error fetching {path}"))?
    else {
        return Ok(None);
    };
    let (hashes, rest) = bytes.as_chunks::<32>();
    ensure!(
        rest.is_empty() && hashes.len() as u64 == width,
        "{path} has {}, {} were requested",
        counted(bytes.len(), "byte"),
        width * 32
    );
    Ok(Some(hashes.to_vec()))
}

/// An answer's body; none where what was requested was dropped from the log.
fn kept(answer: Result<Reply>) -> Result<Option<Bytes>> {
    match answer {
        Ok(answer) => Ok(Some(answer.body)),
        Err(error) if is_status(&error, GONE) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The hashes of events, computed from the events themselves; none where these were dropped.
async fn read(client: &Client, first: u64, width: u64) -> Result<Option<Vec<Hash>>> {
    let mut hashes = Vec::with_capacity(TILE as usize);
    let (mut next, end) = (first, first + width);
    while next < end {
        let (from, to) = (next.to_string(), (end - 1).to_string());
        let query = [("from", from.as_str()), ("to", to.as_str())];
        let what = || format!("Error fetching the events from {from} on");
        let got = kept(client.get("/v1/log/entries", &query).await).with_context(what)?;
        let Some(mut rest) = got.as_deref() else {
            return Ok(None);
        };
        let before = next;
        while let Some((length, tail)) = rest.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            let cut = || format!("the answer with event {next} was cut");
            let (body, tail) = tail.split_at_checked(length).with_context(cut)?;
            let own = body.first_chunk::<8>().map(|own| u64::from_le_bytes(*own));
            ensure!(own == Some(next), "event {next} says it is another");
            hashes.push(leaf_hash(body));
            (rest, next) = (tail, next + 1);
        }
        ensure!(
            next > before && next <= end,
            "the agent has no event {next}"
        );
    }
    Ok(Some(hashes))
}

/// The tiles of a level that a number of hashes makes: number and width.
pub(in crate::cli) fn tiles(hashes: u64) -> impl Iterator<Item = (u64, u64)> {
    let whole = hashes / TILE;
    let part = Some((whole, hashes % TILE)).filter(|(_, width)| *width > 0);
    (0..whole).map(|number| (number, TILE)).chain(part)
}

/// The roots of whole blocks, as the agent reports them.
pub(in crate::cli) async fn blocks(client: &Client, count: u64) -> Result<Vec<Hash>> {
    let mut fetched = futures_util::stream::iter(tiles(count))
        .map(|(number, width)| tile(client, 1, number, width))
        .buffered(AHEAD);
    let mut roots = Vec::new();
    while let Some(hashes) = fetched.try_next().await? {
        roots.extend(hashes.context("the agent dropped a part of its tree")?);
    }
    Ok(roots)
}

/// The leaves of a tile, made of the events themselves where the `whole` log is to be read and none
/// of them was dropped; where the tile itself was dropped, none. Also returns whether the leaves
/// are made of what `whole` names.
pub(in crate::cli) async fn leaves(
    client: &Client,
    whole: bool,
    first: u64,
    (number, width): (u64, u64),
) -> Result<(u64, Option<Vec<Hash>>, bool)> {
    let read = match whole {
        true => read(client, first + number * TILE, width).await?,
        false => None,
    };
    match read {
        Some(leaves) => Ok((number, Some(leaves), true)),
        None => Ok((number, tile(client, 0, number, width).await?, !whole)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_named_as_the_standard_says() {
        assert_eq!(tile_path(0, 0, 256), "/v1/log/tile/0/000");
        assert_eq!(tile_path(1, 67, 5), "/v1/log/tile/1/067.p/5");
        assert_eq!(tile_path(0, 1_234_067, 256), "/v1/log/tile/0/x001/x234/067");
        assert_eq!(
            tiles(600).collect::<Vec<_>>(),
            [(0, 256), (1, 256), (2, 88)]
        );
        assert_eq!(tiles(256).collect::<Vec<_>>(), [(0, 256)]);
    }
}
