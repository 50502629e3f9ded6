//! What the scheduler decides over the real projections: its plans are checked and committed as the
//! plan queue does it, and what is committed is what it sees next.

#[cfg(test)]
mod calls;
#[cfg(test)]
mod csi;
#[cfg(test)]
mod former;
#[cfg(test)]
mod kept;
#[cfg(test)]
mod places;
#[cfg(test)]
mod ports;
#[cfg(test)]
mod reconnect;
#[cfg(test)]
mod requested;
#[cfg(test)]
mod returning;
#[cfg(test)]
mod rollout;
#[cfg(test)]
mod scenario;
#[cfg(test)]
mod suited;
#[cfg(test)]
mod system;
#[cfg(test)]
mod volumes;
#[cfg(test)]
mod world;
