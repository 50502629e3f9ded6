use super::*;

#[test]
fn expressions() {
    for good in [
        "*/5 * * * *",
        "0 0 1 JAN mon-fri",
        "0,30 8-18/2 ? * *",
        "0 0 L * *",
        "0 0 * * 5#2",
        "0 0 15W * * 2030",
        "30 0 0 1 1 * 2025-2030",
        "@daily",
        "@HOURLY",
        "@every 90s",
        "@every 1h30m",
    ] {
        assert!(Schedule::parse(good).is_ok(), "{good}");
    }
    for bad in [
        "",
        "* * *",
        "60 * * * *",
        "* 5-2 * * *",
        "*/0 * * * *",
        "a * * * *",
        "@never",
        "@every",
        "@every 0s",
        "@every -5s",
        "@every 500ms",
        "@every 1500ms",
        "@every sometimes",
        "1 2 3 4 5 6 7 8",
        "0 0 99W * *",
        "0 0 * * 5#6",
    ] {
        assert!(Schedule::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_next_time_of_a_schedule() {
    // 14 May 2025 is a Wednesday.
    for (spec, next) in [
        ("* * * * *", "2025-05-14T10:31:00Z"),
        ("*/15 * * * *", "2025-05-14T10:45:00Z"),
        ("5/20 * * * *", "2025-05-14T10:45:00Z"),
        ("*/10 * * * * * *", "2025-05-14T10:30:40Z"),
        ("0 9 * * *", "2025-05-15T09:00:00Z"),
        ("@monthly", "2025-06-01T00:00:00Z"),
        ("0 0 L * *", "2025-05-31T00:00:00Z"),
        ("0 0 LW * *", "2025-05-30T00:00:00Z"),
        ("0 0 15W 6 *", "2025-06-16T00:00:00Z"),
        ("0 0 * * 5#2", "2025-06-13T00:00:00Z"),
        ("0 0 * * FRIL", "2025-05-30T00:00:00Z"),
        ("0 0 * * 7", "2025-05-18T00:00:00Z"),
        ("0 0 13 * FRI", "2025-05-16T00:00:00Z"),
        ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
        ("0 0 1 1 * 2030", "2030-01-01T00:00:00Z"),
        ("@every 90s", "2025-05-14T10:31:30Z"),
        ("@every 2h", "2025-05-14T12:00:00Z"),
    ] {
        let after: Timestamp = "2025-05-14T10:30:30.5Z".parse().unwrap();
        let found = Schedule::parse(spec).unwrap().next(after, &TimeZone::UTC);
        assert_eq!(found.unwrap().to_string(), next, "{spec}");
    }
    let past = Schedule::parse("0 0 1 1 * 2020").unwrap();
    let after: Timestamp = "2025-05-14T10:30:30Z".parse().unwrap();
    assert_eq!(past.next(after, &TimeZone::UTC), None);
}

#[test]
fn a_launch_is_the_earliest_of_all_in_the_zone_of_the_job() {
    let periodic = PeriodicConfig {
        specs: ["0 9 * * *".to_owned(), "0 6 * * *".to_owned()].into(),
        time_zone: "Europe/Berlin".to_owned(),
        ..PeriodicConfig::default()
    };
    let at = |text: &str| {
        let time: Timestamp = text.parse().unwrap();
        i64::try_from(time.as_nanosecond()).unwrap()
    };
    let next = next_launch(&periodic, at("2025-07-01T00:00:00Z"));
    assert_eq!(next, Some(at("2025-07-01T04:00:00Z")));
    let none = PeriodicConfig::default();
    assert_eq!(next_launch(&none, 0), None);
}

/// All times of a schedule from one to another, as the clock of the zone shows them.
fn all(spec: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
    let schedule = Schedule::parse(spec).unwrap();
    let zone = TimeZone::get(zone).unwrap();
    let mut at: Timestamp = from.parse().unwrap();
    let to: Timestamp = to.parse().unwrap();
    let mut found = Vec::new();
    while let Some(next) = schedule.next(at, &zone).filter(|next| *next <= to) {
        found.push(
            next.to_zoned(zone.clone())
                .strftime("%d %H:%M %Z")
                .to_string(),
        );
        at = next;
    }
    found
}

#[test]
fn a_time_that_the_clock_skips_does_not_happen_that_day() {
    // The clocks of New York went from 02:00 to 03:00 on 10 March 2019.
    let (from, to) = ("2019-03-09T12:00:00Z", "2019-03-12T12:00:00Z");
    let zone = "America/New_York";
    assert_eq!(
        all("30 2 * * *", zone, from, to),
        ["11 02:30 EDT", "12 02:30 EDT"]
    );
    let short = ("2019-03-10T06:00:00Z", "2019-03-10T08:00:00Z");
    assert_eq!(
        all("*/30 * * * *", zone, short.0, short.1),
        [
            "10 01:30 EST",
            "10 03:00 EDT",
            "10 03:30 EDT",
            "10 04:00 EDT"
        ]
    );
    // Those of Sao Paulo skipped midnight itself.
    let (from, to) = ("2018-11-04T02:00:00Z", "2018-11-04T06:00:00Z");
    assert_eq!(
        all("0 1 4 11 *", "America/Sao_Paulo", from, to),
        ["04 01:00 -02"]
    );
}

#[test]
fn a_time_that_the_clock_shows_twice_happens_twice() {
    // The clocks of New York went back from 02:00 to 01:00 on 3 November 2019.
    let zone = "America/New_York";
    let (from, to) = ("2019-11-02T12:00:00Z", "2019-11-04T12:00:00Z");
    assert_eq!(
        all("30 1 * * *", zone, from, to),
        ["03 01:30 EDT", "03 01:30 EST", "04 01:30 EST"]
    );
    let (from, to) = ("2019-11-03T04:00:00Z", "2019-11-03T08:00:00Z");
    assert_eq!(
        all("0 * * * *", zone, from, to),
        [
            "03 01:00 EDT",
            "03 01:00 EST",
            "03 02:00 EST",
            "03 03:00 EST"
        ],
        "an hourly schedule misses no hour"
    );
    let seconds = all(
        "* * * * * * *",
        zone,
        "2019-11-03T05:59:00Z",
        "2019-11-03T06:01:00Z",
    );
    assert_eq!(seconds.len(), 120, "nor one of every second a second");
}

#[test]
fn the_earliest_of_several_is_the_next_and_repeats_count_once() {
    let periodic = PeriodicConfig {
        specs: ["*/20 * * * *".to_owned(), "*/30 * * * *".to_owned()].into(),
        ..PeriodicConfig::default()
    };
    let mut at = 0;
    let mut minutes = Vec::new();
    for _ in 0..5 {
        at = next_launch(&periodic, at).unwrap();
        minutes.push(at / SECOND_NANOS / 60);
    }
    assert_eq!(minutes, [20, 30, 40, 60, 80]);
}

#[test]
fn a_day_that_there_is_not_is_known_at_once() {
    for never in [
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 0 31 2 * *",
        "0 0 29 2 * 2025,2027",
    ] {
        let schedule = Schedule::parse(never).unwrap();
        assert!(!schedule.ever_occurs(), "{never}");
        let now = "2025-05-14T10:30:30Z".parse().unwrap();
        assert_eq!(schedule.next(now, &TimeZone::UTC), None, "{never}");
    }
    for comes in [
        "0 0 29 2 *",
        "0 0 30 2 MON",
        "0 0 1 1 * 1999",
        "@every 1h",
        "* * * * *",
    ] {
        assert!(Schedule::parse(comes).unwrap().ever_occurs(), "{comes}");
    }
}

#[test]
fn so_many_expressions_of_such_a_length_are_looked_through() {
    let with = |count: usize, spec: String| PeriodicConfig {
        specs: vec![spec; count].into(),
        ..PeriodicConfig::default()
    };
    assert_eq!(
        check_limits(&with(MAX_SPEC_COUNT, "* * * * *".to_owned())),
        Ok(())
    );
    let many = check_limits(&with(MAX_SPEC_COUNT + 1, "* * * * *".to_owned())).unwrap_err();
    assert!(many.contains("has 65 cron specs"), "{many}");
    let long = check_limits(&with(1, format!("{}1 * * * *", "1,".repeat(600)))).unwrap_err();
    assert!(long.contains("1209 bytes"), "{long}");
    assert!(LaunchSchedule::of(&with(MAX_SPEC_COUNT + 1, "@daily".to_owned())).is_err());
}
