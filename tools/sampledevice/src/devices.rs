//! Its devices, what a task needs to use them, and how they do.

use std::time::{Duration, SystemTime};

use drover_plugins::proto::device::device_plugin_server::DevicePlugin;
use drover_plugins::proto::device::{
    ContainerReservation, DeviceGroupStats, DeviceSpec, DeviceStats, FingerprintRequest,
    FingerprintResponse, Mount, ReserveRequest, ReserveResponse, StatObject, StatValue,
    StatsRequest, StatsResponse,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::state::Served;

/// The shortest time between two figures.
const SHORTEST: Duration = Duration::from_millis(100);

type Answers<T> = ReceiverStream<Result<T, Status>>;

#[tonic::async_trait]
impl DevicePlugin for Served {
    type FingerprintStream = Answers<FingerprintResponse>;
    type StatsStream = Answers<StatsResponse>;

    async fn fingerprint(
        &self,
        _: Request<FingerprintRequest>,
    ) -> Result<Response<Self::FingerprintStream>, Status> {
        let (sender, answers) = tokio::sync::mpsc::channel(4);
        if self.is_silent() {
            return Ok(Response::new(ReceiverStream::new(answers)));
        }
        let mut reported = self.reported.subscribe();
        let group = self.group();
        let _ = sender
            .send(Ok(FingerprintResponse {
                device_group: vec![group],
            }))
            .await;
        let here = self.clone();
        tokio::spawn(async move {
            while reported.changed().await.is_ok() {
                let group = here.group();
                let answer = FingerprintResponse {
                    device_group: vec![group],
                };
                if sender.send(Ok(answer)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    async fn reserve(
        &self,
        requested: Request<ReserveRequest>,
    ) -> Result<Response<ReserveResponse>, Status> {
        let ids = requested.into_inner().device_ids;
        self.note(&format!("reserve {}", ids.join(",")));
        self.known(&ids)?;
        let folder = self.folder().unwrap_or_default();
        let devices = ids.iter().map(|id| DeviceSpec {
            task_path: format!("/dev/sample-{id}"),
            host_path: "/dev/zero".to_owned(),
            permissions: "r".to_owned(),
        });
        let given = ContainerReservation {
            envs: [("SAMPLE_DEVICES".to_owned(), ids.join(","))].into(),
            mounts: vec![Mount {
                task_path: "/opt/sample".to_owned(),
                host_path: folder.join("share").display().to_string(),
                read_only: true,
            }],
            devices: devices.collect(),
        };
        Ok(Response::new(ReserveResponse {
            container_res: Some(given),
        }))
    }

    async fn stats(
        &self,
        requested: Request<StatsRequest>,
    ) -> Result<Response<Self::StatsStream>, Status> {
        let interval = requested.into_inner().collection_interval;
        let interval = interval.and_then(|one| Duration::try_from(one).ok());
        let interval = interval.unwrap_or(SHORTEST).max(SHORTEST);
        let (sender, answers) = tokio::sync::mpsc::channel(4);
        let group = self.group();
        tokio::spawn(async move {
            for count in 1_i64.. {
                let devices = group.devices.iter();
                let groups = vec![DeviceGroupStats {
                    vendor: group.vendor.clone(),
                    r#type: group.device_type.clone(),
                    name: group.device_name.clone(),
                    instance_stats: devices
                        .map(|one| (one.id.clone(), figures(count)))
                        .collect(),
                }];
                if sender.send(Ok(StatsResponse { groups })).await.is_err() {
                    return;
                }
                tokio::time::sleep(interval).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }
}

fn figures(count: i64) -> DeviceStats {
    let used = StatValue {
        int_numerator_val: Some(count),
        int_denominator_val: Some(100),
        unit: "%".to_owned(),
        desc: "how often it was looked".to_owned(),
        ..StatValue::default()
    };
    DeviceStats {
        summary: Some(used.clone()),
        stats: Some(StatObject {
            attributes: [("used".to_owned(), used)].into(),
            ..StatObject::default()
        }),
        timestamp: Some(SystemTime::now().into()),
    }
}
