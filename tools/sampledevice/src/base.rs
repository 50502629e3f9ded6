//! Who it is, its settings, and its end.

use drover_plugins::proto::base::base_plugin_server::BasePlugin;
use drover_plugins::proto::base::spec::Block as Kind;
use drover_plugins::proto::base::{
    Attr, ConfigSchemaRequest, ConfigSchemaResponse, Default as Usual, Literal, Object,
    PluginInfoRequest, PluginInfoResponse, PluginType, SetConfigRequest, SetConfigResponse, Spec,
};
use drover_plugins::proto::controller::Empty;
use drover_plugins::proto::controller::grpc_controller_server::GrpcController;
use serde::Deserialize;
use tonic::{Request, Response, Status};

use crate::state::Served;

#[derive(Debug, Deserialize)]
struct Settings {
    /// Where it keeps its files.
    dir: Option<String>,
    /// The name of its devices.
    model: String,
}

fn of(kind: Kind) -> Spec {
    Spec { block: Some(kind) }
}

fn text() -> Spec {
    of(Kind::Attr(Attr {
        name: String::new(),
        r#type: "string".to_owned(),
        required: false,
    }))
}

fn form() -> Spec {
    let model = of(Kind::Default(Box::new(Usual {
        primary: Some(Box::new(text())),
        default: Some(Box::new(of(Kind::Literal(Literal {
            value: "\"widget\"".to_owned(),
        })))),
    })));
    let attributes = [("dir".to_owned(), text()), ("model".to_owned(), model)];
    of(Kind::Object(Object {
        attributes: attributes.into(),
    }))
}

#[tonic::async_trait]
impl BasePlugin for Served {
    async fn plugin_info(
        &self,
        _: Request<PluginInfoRequest>,
    ) -> Result<Response<PluginInfoResponse>, Status> {
        Ok(Response::new(PluginInfoResponse {
            r#type: PluginType::Device.into(),
            plugin_api_versions: vec!["v0.1.0".to_owned()],
            plugin_version: env!("CARGO_PKG_VERSION").to_owned(),
            name: "sample".to_owned(),
        }))
    }

    async fn config_schema(
        &self,
        _: Request<ConfigSchemaRequest>,
    ) -> Result<Response<ConfigSchemaResponse>, Status> {
        Ok(Response::new(ConfigSchemaResponse { spec: Some(form()) }))
    }

    async fn set_config(
        &self,
        requested: Request<SetConfigRequest>,
    ) -> Result<Response<SetConfigResponse>, Status> {
        let bytes = requested.into_inner().msgpack_config;
        let settings: Settings = rmp_serde::from_slice(&bytes)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        if let Some(dir) = &settings.dir {
            self.keep_in(dir.as_ref());
        }
        self.note(&format!("settings {}", settings.model));
        if let Ok(mut model) = self.model.lock() {
            *model = settings.model;
        }
        Ok(Response::new(SetConfigResponse {}))
    }
}

#[tonic::async_trait]
impl GrpcController for Served {
    async fn shutdown(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.note("shutdown");
        self.end();
        Ok(Response::new(Empty {}))
    }
}
