//! The program that decides about devices: by a machine of our own, and by the kernel's.

use super::device_program::*;

/// What the program says; the machine knows as many instructions as the program has.
fn run(program: &[Instruction], kind: u32, wanted: u32, major: u32, minor: u32) -> u64 {
    let requested = [kind | wanted << 16, major, minor];
    let mut registers = [0_u64; 10];
    let mut at = 0;
    for _ in 0..program.len() {
        let Instruction {
            code,
            registers: both,
            offset,
            value,
        } = program[at];
        let (to, from) = (usize::from(both & 15), usize::from(both >> 4));
        // Numbers that are written in 32 bits are as large in 64, with their sign.
        let value = i64::from(value).cast_unsigned();
        at += 1;
        match code {
            LOAD => {
                assert_eq!(
                    (from, offset % 4),
                    (1, 0),
                    "of what is requested, in its parts"
                );
                registers[to] = requested[usize::try_from(offset / 4).unwrap()].into();
            }
            SET => registers[to] = value,
            COPY => registers[to] = registers[from],
            AND => registers[to] &= value,
            SHIFT_RIGHT => registers[to] >>= value,
            JUMP_UNLESS if registers[to] != value => at += usize::try_from(offset).unwrap(),
            JUMP_UNLESS => {}
            EXIT => return registers[0],
            other => panic!("instruction {other:#x}"),
        }
    }
    panic!("it has no end");
}

fn rule(kind: u32, major: u32, minor: Option<u32>, rights: u32) -> DeviceRule {
    DeviceRule {
        kind,
        major,
        minor,
        rights,
    }
}

#[test]
fn drv_06_the_program_allows_what_a_rule_allows_and_nothing_else() {
    let rules = [
        rule(CHARACTER, 1, Some(3), READ | WRITE | MAKE),
        rule(CHARACTER, 1, Some(5), READ),
        rule(CHARACTER, 136, None, READ | WRITE),
        rule(BLOCK, 8, Some(0), WRITE),
        rule(BLOCK, 4095, Some((1 << 20) - 1), READ),
    ];
    let program = program(&rules);
    let mut allowed = 0;
    for kind in [BLOCK, CHARACTER, 3] {
        for major in [0, 1, 8, 136, 137, 4095] {
            for minor in [0, 1, 3, 5, 255, (1 << 20) - 1] {
                for wanted in 0..8 {
                    let by_rule = rules.iter().any(|rule| {
                        rule.kind == kind
                            && rule.major == major
                            && rule.minor.is_none_or(|one| one == minor)
                            && wanted & !rule.rights == 0
                    });
                    let answer = run(&program, kind, wanted, major, minor);
                    let what = format!("{kind} {major}:{minor} {wanted:03b}");
                    assert_eq!(answer, u64::from(by_rule), "{what}");
                    allowed += u32::from(by_rule);
                }
            }
        }
    }
    // As many as the rules say, of all combinations of rights: 8, 2, 6 times 4, 2 and 2.
    assert_eq!(allowed, 8 + 2 + 24 + 2 + 2);
    assert_eq!(
        run(&super::device_program::program(&[]), CHARACTER, READ, 1, 3),
        0
    );
}
