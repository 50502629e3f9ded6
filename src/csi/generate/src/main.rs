//! Writes `src/csi/generated/csi.v1.rs` from `csi.proto` beside it. Run it at the root of the
//! repository: `cargo run --manifest-path src/csi/generate/Cargo.toml`.

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
    Ok(())
}
