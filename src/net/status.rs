//! What a refusal is answered with: one table for HTTP and RPC.

use drover_error::Code;

/// The HTTP status of a code (Nomad's HTTP API, error mapping). Each has exactly one.
pub const fn status(code: Code) -> u16 {
    match code {
        Code::BadRequest => 400,
        Code::Unauthorized => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::MethodNotAllowed => 405,
        Code::Conflict => 409,
        Code::Gone => 410,
        Code::PayloadTooLarge => 413,
        Code::UnsupportedMediaType => 415,
        Code::TooManyRequests => 429,
        Code::Refused | Code::Internal | Code::NoLeader => 500,
        Code::NotImplemented => 501,
        Code::Unavailable => 503,
        Code::Timeout => 504,
    }
}

/// The code of a status that another agent answered; none for 500, which stands for several.
pub fn code(answered: u16) -> Option<Code> {
    let of_one = |code: &Code| answered != 500 && status(*code) == answered;
    Code::ALL.into_iter().find(of_one)
}

/// Whether an answer with this status says that its caller may not, or is not known.
pub const fn denies(answered: u16) -> bool {
    answered == status(Code::Unauthorized) || answered == status(Code::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_status_of_an_error() {
        for code in Code::ALL {
            let answered = status(code);
            assert!((400..600).contains(&answered), "{code:?}");
            let back = (answered != 500).then_some(code);
            assert_eq!(super::code(answered), back, "only 500 stands for several");
        }
    }
}
