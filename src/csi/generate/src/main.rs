//! Writes `src/csi/generated/csi.v1.rs` from `csi.proto` beside it, and in the same way what is in
//! `src/plugins/generated`. Run it at the root of the repository: `cargo run --manifest-path
//! src/csi/generate/Cargo.toml`.

use std::fmt::Write as _;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new("src/csi/generated");
    let mut described = protox::compile([folder.join("csi.proto")], [folder])?;
    // What a plugin of one of these offers beside them is of no use here.
    for file in &mut described.file {
        let wanted = |name: &str| matches!(name, "Identity" | "Controller" | "Node");
        file.service.retain(|service| wanted(service.name()));
        // Comments, by the places where they stood; they are in the specification.
        file.source_code_info = None;
    }
    let secret: Vec<_> = described
        .file
        .iter()
        .flat_map(|file| &file.message_type)
        .filter(|message| message.field.iter().any(|field| field.name() == "secrets"))
        .collect();
    let mut config = prost_build::Config::new();
    config.btree_map(["."]);
    config.skip_debug(
        secret
            .iter()
            .map(|message| format!(".csi.v1.{}", message.name())),
    );
    tonic_prost_build::configure()
        .build_transport(false)
        .generate_default_stubs(true)
        .out_dir(folder)
        .compile_fds_with_config(described.clone(), config)?;

    let path = folder.join("csi.v1.rs");
    // What is marked as a secret in the specification is in no message's Debug.
    let mut written = std::fs::read_to_string(&path)?;
    for message in secret {
        let name = message.name();
        writeln!(written, "impl ::core::fmt::Debug for {name} {{")?;
        writeln!(
            written,
            "fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{"
        )?;
        writeln!(written, "f.debug_struct({name:?})")?;
        for field in &message.field {
            match field.name() {
                "secrets" => writeln!(written, ".field(\"secrets\", &\"[REDACTED]\")")?,
                "type" => writeln!(written, ".field(\"type\", &self.r#type)")?,
                name => writeln!(written, ".field({name:?}, &self.{name})")?,
            }
        }
        writeln!(written, ".finish()\n}}\n}}")?;
    }
    std::fs::write(path, written)?;
    plugins()
}

/// The protocol of plugins that are processes of their own.
fn plugins() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new("src/plugins/generated");
    let files = ["base.proto", "controller.proto", "device.proto"].map(|file| folder.join(file));
    let mut described = protox::compile(files, [folder])?;
    for file in &mut described.file {
        file.source_code_info = None;
    }
    let mut config = prost_build::Config::new();
    config.btree_map(["."]);
    // Settings may be secrets.
    config.skip_debug([".hashicorp.nomad.plugins.base.proto.SetConfigRequest"]);
    tonic_prost_build::configure()
        .build_transport(false)
        .out_dir(folder)
        .compile_fds_with_config(described, config)?;
    let path = folder.join("hashicorp.nomad.plugins.base.proto.rs");
    let mut written = std::fs::read_to_string(&path)?;
    writeln!(written, "impl ::core::fmt::Debug for SetConfigRequest {{")?;
    writeln!(
        written,
        "fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{"
    )?;
    writeln!(
        written,
        "f.debug_struct(\"SetConfigRequest\").finish_non_exhaustive()\n}}\n}}"
    )?;
    std::fs::write(path, written)?;
    Ok(())
}
