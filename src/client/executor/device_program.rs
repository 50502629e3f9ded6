//! Rights to devices in a control group of version 2: a program of the kernel's own machine, which
//! the kernel runs each time that a task of the group opens a device, or makes a node of one.
//!
//! It gets the kind of the device, its numbers and what is wanted, and answers with 1 or 0. It
//! belongs to the group and goes with it. Programs of groups above are run too, and all must
//! agree.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use nix::libc;

/// What may be wanted of a device, as the kernel's bits: to make a node, to read, to write.
pub(super) const MAKE: u32 = 1;
pub(super) const READ: u32 = 2;
pub(super) const WRITE: u32 = 4;
/// Kinds of devices.
pub(super) const BLOCK: u32 = 1;
pub(super) const CHARACTER: u32 = 2;

/// What may be done with a device, or with all of a driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceRule {
    pub(super) kind: u32,
    pub(super) major: u32,
    /// `None` for any.
    pub(super) minor: Option<u32>,
    pub(super) rights: u32,
}

/// An instruction, as the kernel takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    pub(super) code: u8,
    /// The register that is changed, and the one that is read, four bits each.
    pub(super) registers: u8,
    pub(super) offset: i16,
    pub(super) value: i32,
}

/// What instructions do; what is compared has 64 bits.
pub(super) const LOAD: u8 = 0x61;
pub(super) const SET: u8 = 0xb7;
pub(super) const COPY: u8 = 0xbf;
pub(super) const AND: u8 = 0x57;
pub(super) const SHIFT_RIGHT: u8 = 0x77;
pub(super) const JUMP_UNLESS: u8 = 0x55;
pub(super) const EXIT: u8 = 0x95;

/// Registers: the answer, the request for a device, and what was taken out of that.
const ANSWER: u8 = 0;
const REQUESTED: u8 = 1;
const KIND: u8 = 2;
const WANTED: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;
/// The bits of the kind, and how far those of what is wanted are from the end.
const KINDS: i32 = 0xffff;
const WANTED_AT: i32 = 16;

fn with(code: u8, to: u8, value: i32) -> Instruction {
    Instruction {
        code,
        registers: to,
        offset: 0,
        value,
    }
}

fn copy(to: u8, from: u8) -> Instruction {
    Instruction {
        registers: to | from << 4,
        ..with(COPY, to, 0)
    }
}

/// Takes 32 bits at this offset from the beginning of the request.
fn load(to: u8, offset: i16) -> Instruction {
    Instruction {
        registers: to | REQUESTED << 4,
        offset,
        ..with(LOAD, to, 0)
    }
}

/// The program that allows this and nothing else. Each rule is looked at by itself: what one alone
/// does not allow, two do not either.
pub(super) fn program(rules: &[DeviceRule]) -> Vec<Instruction> {
    let mut all = vec![
        load(KIND, 0),
        copy(WANTED, KIND),
        with(AND, KIND, KINDS),
        with(SHIFT_RIGHT, WANTED, WANTED_AT),
        load(MAJOR, 4),
        load(MINOR, 8),
    ];
    for rule in rules {
        let unless = |register, value: u32| with(JUMP_UNLESS, register, value.cast_signed());
        let mut of_rule = vec![unless(KIND, rule.kind), unless(MAJOR, rule.major)];
        of_rule.extend(rule.minor.map(|minor| unless(MINOR, minor)));
        // What is wanted and not allowed.
        of_rule.push(copy(ANSWER, WANTED));
        of_rule.push(with(AND, ANSWER, (!rule.rights).cast_signed()));
        of_rule.push(unless(ANSWER, 0));
        of_rule.push(with(SET, ANSWER, 1));
        of_rule.push(with(EXIT, 0, 0));
        let length = of_rule.len();
        for (at, one) in of_rule.iter_mut().enumerate() {
            if one.code == JUMP_UNLESS {
                // To the next rule; a rule has few instructions.
                one.offset = i16::try_from(length - at - 1).unwrap_or(i16::MAX);
            }
        }
        all.extend(of_rule);
    }
    all.extend([with(SET, ANSWER, 0), with(EXIT, 0, 0)]);
    all
}

/// Whether this kernel takes such programs from us.
pub(super) fn can_load() -> bool {
    loaded(&program(&[])).is_ok()
}

/// Lets a group use these devices, and no others.
///
/// # Errors
/// The kernel takes no such program.
pub(super) fn attach(group: &Path, rules: &[DeviceRule]) -> io::Result<()> {
    let group = File::open(group)?;
    let program = loaded(&program(rules))?;
    let attributes = Attach {
        group: unsigned(&group),
        program: unsigned(&program),
        kind: OF_DEVICES,
        flags: BESIDE_OTHERS,
    };
    call(ATTACH, &attributes).map(drop)
}

/// The commands to the kernel: to take a program, to give one to a group.
const LOAD_PROGRAM: libc::c_long = 5;
const ATTACH: libc::c_long = 8;
/// Programs of control groups that decide about devices; the same when it is attached.
const PROGRAM_OF_DEVICES: u32 = 15;
const OF_DEVICES: u32 = 6;
/// Groups above and below may have programs of their own.
const BESIDE_OTHERS: u32 = 2;

#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
}

#[repr(C)]
struct Attach {
    group: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

fn unsigned(fd: &impl AsRawFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

fn loaded(program: &[Instruction]) -> io::Result<OwnedFd> {
    let license = c"Apache-2.0";
    let attributes = Load {
        kind: PROGRAM_OF_DEVICES,
        count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: program.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
    };
    let fd = call(LOAD_PROGRAM, &attributes)?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    #[expect(
        unsafe_code,
        reason = "the kernel answers with a descriptor as a number"
    )]
    // SAFETY: it was just made for us, and no other owner has it.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(owned)
}

/// Calls the kernel. Its argument must be one of the structures above, which begin as the
/// kernel's do and leave out what is zero.
#[expect(unsafe_code, reason = "no crate here has this call of the kernel")]
fn call<T>(what: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads as many bytes as the size argument says, and what they point to, all
    // of which lives until it answers; it writes nothing.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            what,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    match answer {
        0.. => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}
