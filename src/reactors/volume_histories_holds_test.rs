//! What must hold of a history, at any time and in the end.

use super::*;

impl History<'_> {
    /// What must hold at any time.
    pub(super) fn holds(&self) -> Result<(), String> {
        if let Some(first) = self.world.strict.wrong().first() {
            return Err(first.clone());
        }
        let made = format!("new-{}", self.volume);
        let named = self.world.known(&made).map(|row| row.volume.external_id);
        if named.is_some_and(|named| named == ANOTHER) {
            return Err("two volumes are one at the provider".to_owned());
        }
        for id in [&made, &self.volume] {
            let row = self.world.known(id).map(|row| row.volume);
            let is = |row: CsiVolume| self.world.strict.size(&row.external_id).map(|is| (row, is));
            let sizes = row.and_then(is);
            if let Some((row, is)) = sizes.filter(|(row, is)| row.capacity > *is) {
                return Err(format!("{id} has {is} bytes and not {}", row.capacity));
            }
        }
        let Some(row) = self.world.known(&self.volume) else {
            return Ok(());
        };
        let allocs = self.allocs.lock();
        for (alloc, claim) in row.claims() {
            let held = allocs.contains_key(alloc) && claim.allocation_id == alloc;
            if !held || claim.node_id.is_empty() || claim.mode >= claim_mode::GC {
                return Err(format!("held by nobody: {claim:?}"));
            }
        }
        let writers = row
            .claims()
            .filter(|(_, claim)| claim.mode == claim_mode::WRITE);
        match self.access {
            ONE if row.holders().count() > 1 => Err("two hold a volume of one".to_owned()),
            WRITER if writers.count() > 1 => Err("two write to a volume of one".to_owned()),
            _ => Ok(()),
        }
    }

    /// Everything is well again, and everybody leaves.
    pub(super) async fn end(&mut self) -> Result<(), String> {
        self.world.strict.heal();
        for node in 0..NODES {
            self.find(node);
        }
        let all: Vec<(String, Held)> = self.allocs.lock().clone().into_iter().collect();
        for (id, _) in all.iter().filter(|(_, held)| !held.gone) {
            self.end_of(id);
            self.world.alloc_is(id, "complete");
        }
        if self.world.known(&self.volume).is_none() {
            // A node that was given up may still show it, and is queried for what is known.
            self.world.volume(&self.volume, self.access);
        }
        let limit = std::time::Instant::now() + LONG;
        while !self.is_free() {
            if std::time::Instant::now() > limit {
                let row = self.world.known(&self.volume);
                let made = self.world.known(&format!("new-{}", self.volume));
                return Err(format!("not free in the end: {row:#?} {made:#?}"));
            }
            self.calls.retain(|call| !call.is_finished());
            if self.calls.is_empty() {
                (0..NODES).for_each(|node| self.clients_give_back(node));
            }
            self.watch().await;
            turns(8).await;
            self.holds()?;
        }
        let reported = self.world.volumes.all_last_errors(1);
        if !reported.is_empty() {
            return Err(format!("what is over is told of: {reported:?}"));
        }
        self.grows(limit).await
    }

    /// In the end it is as large as its row says, whatever became of growing it before.
    async fn grows(&mut self, limit: std::time::Instant) -> Result<(), String> {
        for call in self.calls.drain(..) {
            call.await.map_err(|error| error.to_string())?;
        }
        let mut largest = volume(&self.volume, self.access);
        largest.requested_capacity_min = SIZES[SIZES.len() - 1];
        let origin = Origin::default();
        let volumes = Arc::clone(&self.world.volumes);
        while let Err(error) = volumes.register(vec![largest.clone()], &origin).await {
            if std::time::Instant::now() > limit {
                return Err(format!("it cannot be made larger: {error}"));
            }
            self.watch().await;
            turns(8).await;
        }
        let says = self.world.row(&self.volume).volume.capacity;
        match self.world.strict.size(&self.volume) {
            Some(is) if says != 0 && is != says => Err(format!("it has {is} bytes, not {says}")),
            _ => Ok(()),
        }
    }

    fn is_free(&self) -> bool {
        let made = format!("new-{}", self.volume);
        let rest = |id| self.world.known(id).is_none_or(|row| row.is_at_rest());
        let free = rest(&self.volume) && rest(&made);
        // Why a volume is not deleted is reported until the caller that requested the deletion has
        // the answer.
        let requested = self.calls.iter().any(|call| !call.is_finished());
        free && !requested && self.world.strict.is_idle() && self.watcher.workers() == 0
    }
}
