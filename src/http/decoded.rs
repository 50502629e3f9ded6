//! Long bodies, decoded away from the threads that serve.

use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::front::FrontCall;
use crate::error::Refusal;
use crate::table_reads::in_turn;

/// Bodies that are decoded where they came in, bytes.
pub(super) const SHORT: usize = 64 << 10;
/// What is made of the body of a query takes as many times its length, for as long as it is read.
pub(super) const DECODED: usize = 7;
/// Long bodies of writes that are decoded at a time.
static DECODING: Semaphore = Semaphore::const_new(2);
/// Jobs that are held to the rules at a time.
static JUDGING: Semaphore = Semaphore::const_new(16);

impl FrontCall {
    /// Takes from the body what the handler needs. Where it is long, that is done away from the
    /// threads that serve, and for few at a time: it may take many times the body's length.
    ///
    /// # Errors
    /// Those of `take`. 503 where others keep those few places.
    pub(super) async fn decoded<T: Send + 'static>(
        &self,
        take: impl FnOnce(&Self) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        if self.request.body.len() <= SHORT {
            return take(self);
        }
        let call = self.clone();
        in_turn(&DECODING, move || take(&call)).await?
    }

    /// The same of what holds a job, which is held to every rule there is: never on the threads
    /// that serve, however short it is.
    ///
    /// # Errors
    /// As [`FrontCall::decoded`].
    pub(super) async fn judged<T: Send + 'static>(
        &self,
        take: impl FnOnce(&Self) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        if self.request.body.len() > SHORT {
            return self.decoded(take).await;
        }
        let call = self.clone();
        in_turn(&JUDGING, move || take(&call)).await?
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// 400: empty, or not of the type that is read; the message names the field.
    pub(super) async fn json<T>(&self) -> Result<T, Refusal>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.decoded(|call| call.request.json()).await
    }

    /// The body as JSON, the default when there is none.
    ///
    /// # Errors
    /// 400: not of the type that is read.
    pub(super) async fn json_or_default<T>(&self) -> Result<T, Refusal>
    where
        T: DeserializeOwned + Default + Send + 'static,
    {
        self.decoded(|call| call.request.json_or_default()).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http::harness::{Harness, job};
    use crate::http::request::Request;

    #[tokio::test(flavor = "multi_thread")]
    async fn long_bodies_are_decoded_away_from_the_threads_that_serve() {
        let h = Harness::start().await;
        for (length, elsewhere) in [(1_000, false), (100_000, true)] {
            let put = hyper::Request::put("/v1/jobs").body(()).unwrap();
            let mut request = Request::head(put.into_parts().0).unwrap();
            request.body = vec![b' '; length].into();
            let write = FrontCall {
                api: h.api.clone(),
                request: request.into(),
            };
            let here = std::thread::current().id();
            let there = write.decoded(|_| Ok(std::thread::current().id())).await;
            assert_eq!(here != there.unwrap(), elsewhere, "{length} bytes");
            let judged = write.judged(|_| Ok(std::thread::current().id())).await;
            assert_ne!(here, judged.unwrap(), "{length} bytes");
        }
        // What is long is read as what is short.
        let mut long = job("long");
        long["Job"]["Unknown"] = json!(vec![json!({"a": 0}); 20_000]);
        let done = h.put("/v1/jobs", &long).await;
        assert_eq!(done.status, 200, "{}", done.text());
        assert_eq!(h.get("/v1/job/long").await.json()["ID"], "long");
    }
}
