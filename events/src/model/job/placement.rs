//! Where a job may and should run.

use crate::gojson::List;

crate::wire! {
    /// A condition a node must meet.
    pub struct Constraint = "constraint" {
        l_target: String = "LTarget" [hcl_as("attribute")],
        r_target: String = "RTarget" [hcl_as("value")],
        operand: String = "Operand" [hcl_as("operator")],
    } + {
        version: String = "@version" [hcl().optional()],
        semver: String = "@semver" [hcl().optional()],
        regexp: String = "@regexp" [hcl().optional()],
        set_contains: String = "@set_contains" [hcl().optional()],
        set_contains_any: String = "@set_contains_any" [hcl().optional()],
        set_contains_all: String = "@set_contains_all" [hcl().optional()],
        distinct_hosts: bool = "@distinct_hosts" [hcl().optional()],
        distinct_property: String = "@distinct_property" [hcl().optional()],
    }
}

crate::wire! {
    /// A preference for nodes, weighted from -100 to 100.
    pub struct Affinity = "affinity" {
        l_target: String = "LTarget" [hcl_as("attribute")],
        r_target: String = "RTarget" [hcl_as("value")],
        operand: String = "Operand" [hcl_as("operator")],
        weight: i8 = "Weight" [hcl().optional().default_int(50)],
    } + {
        version: String = "@version" [hcl().optional()],
        semver: String = "@semver" [hcl().optional()],
        regexp: String = "@regexp" [hcl().optional()],
        set_contains: String = "@set_contains" [hcl().optional()],
        set_contains_any: String = "@set_contains_any" [hcl().optional()],
        set_contains_all: String = "@set_contains_all" [hcl().optional()],
    }
}

crate::wire! {
    /// A preference to spread over the values of an attribute.
    pub struct Spread = "spread" {
        attribute: String = "Attribute" [hcl()],
        weight: i8 = "Weight" [hcl().optional().default_int(50)],
        spread_target: List<SpreadTarget> = "SpreadTarget" [hcl_as("target").labelled("Value")],
    }
}

crate::wire! {
    /// The share of one value of a spread.
    pub struct SpreadTarget = "target" {
        value: String = "Value" [hcl()],
        percent: u8 = "Percent" [hcl()],
    }
}
