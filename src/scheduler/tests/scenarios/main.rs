//! What the scheduler decides over the real projections: its plans are checked and committed as the
//! plan queue does it, and what is committed is what it sees next.

mod asked;
mod calls;
mod places;
mod ports;
mod reconnect;
mod returning;
mod rollout;
mod scenario;
mod system;
mod world;
