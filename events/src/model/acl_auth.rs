//! Authentication methods and binding rules.

use crate::gojson::{Base64, DurationText, GoTime, List, Map, Time};

crate::wire! {
    /// A way to log in.
    pub struct AclAuthMethod {
        name: String = "Name",
        r#type: String = "Type",
        token_locality: String = "TokenLocality" (Public),
        token_name_format: String = "TokenNameFormat" (Public),
        max_token_ttl: DurationText = "MaxTokenTTL" (Public),
        default: bool = "Default",
        config: Option<AclAuthMethodConfig> = "Config",
        hash: Base64 = "Hash",
        create_time: GoTime = "CreateTime",
        modify_time: GoTime = "ModifyTime",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// Settings of a way to log in.
    pub struct AclAuthMethodConfig {
        jwt_validation_pub_keys: List<String> = "JWTValidationPubKeys",
        jwks_url: String = "JWKSURL",
        oidc_discovery_url: String = "OIDCDiscoveryURL",
        oidc_client_id: String = "OIDCClientID",
        oidc_client_secret: String = "OIDCClientSecret" (Secret),
        oidc_client_assertion: Option<OidcClientAssertion> = "OIDCClientAssertion",
        oidc_enable_pkce: bool = "OIDCEnablePKCE",
        oidc_disable_user_info: bool = "OIDCDisableUserInfo",
        oidc_scopes: List<String> = "OIDCScopes",
        bound_audiences: List<String> = "BoundAudiences",
        bound_issuer: List<String> = "BoundIssuer",
        allowed_redirect_uris: List<String> = "AllowedRedirectURIs",
        discovery_ca_pem: List<String> = "DiscoveryCaPem",
        jwks_ca_cert: String = "JWKSCACert",
        signing_algs: List<String> = "SigningAlgs",
        expiration_leeway: DurationText = "ExpirationLeeway",
        not_before_leeway: DurationText = "NotBeforeLeeway",
        clock_skew_leeway: DurationText = "ClockSkewLeeway",
        claim_mappings: Map<String> = "ClaimMappings",
        list_claim_mappings: Map<String> = "ListClaimMappings",
        verbose_logging: bool = "VerboseLogging",
    }
}

crate::wire! {
    /// How the cluster proves itself to a provider.
    pub struct OidcClientAssertion {
        audience: List<String> = "Audience",
        key_source: String = "KeySource",
        key_algorithm: String = "KeyAlgorithm",
        private_key: Option<OidcClientAssertionKey> = "PrivateKey" (Public),
        extra_headers: Map<String> = "ExtraHeaders" (Sensitive),
    }
}

crate::wire! {
    /// The key of such a proof.
    pub struct OidcClientAssertionKey {
        pem_key: String = "PemKey" (Secret),
        pem_key_file: String = "PemKeyFile",
        key_id_header: String = "KeyIDHeader",
        key_id: String = "KeyID",
        pem_cert: String = "PemCert",
        pem_cert_file: String = "PemCertFile",
    }
}

crate::wire! {
    /// Which roles and policies a login gets.
    pub struct AclBindingRule {
        id: String = "ID",
        description: String = "Description",
        auth_method: String = "AuthMethod",
        selector: String = "Selector",
        bind_type: String = "BindType",
        bind_name: String = "BindName",
        hash: Base64 = "Hash",
        create_time: Time = "CreateTime",
        modify_time: Time = "ModifyTime",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}
