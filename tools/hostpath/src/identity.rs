//! Who the plugin is.

use drover_csi::proto::identity_server::Identity;
use drover_csi::proto::plugin_capability::service::Type;
use drover_csi::proto::plugin_capability::volume_expansion;
use drover_csi::proto::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse, plugin_capability,
};
use tonic::{Request, Response, Status, async_trait};

use crate::calls::Plugin;

#[async_trait]
impl Identity for Plugin {
    async fn get_plugin_info(
        &self,
        request: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        self.answer("GetPluginInfo", request, |plugin, _, _| {
            Ok(GetPluginInfoResponse {
                name: plugin.options.name.clone(),
                vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
                ..Default::default()
            })
        })
        .await
    }

    async fn get_plugin_capabilities(
        &self,
        request: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        self.answer("GetPluginCapabilities", request, |plugin, _, _| {
            let mut kinds = Vec::new();
            // Also a node part whose controller runs elsewhere says that there is one.
            if !plugin.options.nodes_only {
                kinds.push(Type::ControllerService);
            }
            if !plugin.options.topology.is_empty() {
                kinds.push(Type::VolumeAccessibilityConstraints);
            }
            let service = |kind| {
                plugin_capability::Type::Service(plugin_capability::Service {
                    r#type: i32::from(kind),
                })
            };
            let mut kinds: Vec<_> = kinds.into_iter().map(service).collect();
            if plugin.options.offline {
                kinds.push(plugin_capability::Type::VolumeExpansion(
                    plugin_capability::VolumeExpansion {
                        r#type: i32::from(volume_expansion::Type::Offline),
                    },
                ));
            }
            let capability = |kind| PluginCapability { r#type: Some(kind) };
            let capabilities = kinds.into_iter().map(capability).collect();
            Ok(GetPluginCapabilitiesResponse { capabilities })
        })
        .await
    }

    async fn probe(
        &self,
        request: Request<ProbeRequest>,
    ) -> Result<Response<ProbeResponse>, Status> {
        self.answer("Probe", request, |_, _, _| {
            Ok(ProbeResponse { ready: Some(true) })
        })
        .await
    }
}
