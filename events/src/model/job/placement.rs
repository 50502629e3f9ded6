//! Where a job may and should run.

use crate::gojson::List;

crate::wire! {
    /// A condition a node must meet.
    pub struct Constraint {
        l_target: String = "LTarget",
        r_target: String = "RTarget",
        operand: String = "Operand",
    }
}

crate::wire! {
    /// A preference for nodes, weighted from -100 to 100.
    pub struct Affinity {
        l_target: String = "LTarget",
        r_target: String = "RTarget",
        operand: String = "Operand",
        weight: i8 = "Weight",
    }
}

crate::wire! {
    /// A wish to spread over the values of an attribute.
    pub struct Spread {
        attribute: String = "Attribute",
        weight: i8 = "Weight",
        spread_target: List<SpreadTarget> = "SpreadTarget",
    }
}

crate::wire! {
    /// The share of one value of a spread.
    pub struct SpreadTarget {
        value: String = "Value",
        percent: u8 = "Percent",
    }
}
