use super::*;

fn eval(id: &str, job: &str, priority: i64, index: u64) -> Evaluation {
    Evaluation {
        id: id.into(),
        namespace: "default".into(),
        job_id: job.into(),
        r#type: "service".into(),
        priority,
        create_index: index,
        modify_index: index,
        ..Evaluation::default()
    }
}

fn broker() -> Broker {
    let mut broker = Broker::new(BrokerSettings::default());
    broker.enable();
    broker
}

fn next(broker: &mut Broker, now: i64) -> Option<(String, u64)> {
    broker
        .dequeue(&["service", "batch"], now)
        .map(|(eval, token)| (eval.id, token))
}

#[test]
fn the_most_urgent_comes_first_and_then_the_oldest() {
    let mut broker = broker();
    for (id, job, priority, index) in [("a", "1", 50, 3), ("b", "2", 50, 2), ("c", "3", 90, 9)] {
        broker.enqueue(eval(id, job, priority, index), 0);
    }
    let order: Vec<String> = std::iter::from_fn(|| next(&mut broker, 0))
        .map(|(id, _)| id)
        .collect();
    assert_eq!(order, ["c", "b", "a"]);
}

#[test]
fn one_of_a_job_at_a_time_and_the_superfluous_are_cancelled() {
    let mut broker = broker();
    for (id, index) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        broker.enqueue(eval(id, "job", 50, index), 0);
    }
    let (id, token) = next(&mut broker, 0).unwrap();
    assert_eq!(id, "a");
    assert_eq!(next(&mut broker, 0), None, "the job is busy");
    assert_eq!(broker.ack("a", token + 1, 0), Err(BrokerError::WrongToken));
    broker.ack("a", token, 0).unwrap();
    assert_eq!(
        next(&mut broker, 0).unwrap().0,
        "d",
        "the newest sees all the others saw"
    );
    let cancelled: Vec<String> = broker
        .take_cancelable(10)
        .into_iter()
        .map(|eval| eval.id)
        .collect();
    assert_eq!(cancelled, ["c", "b"]);
    assert_eq!(broker.ack("a", token, 0), Err(BrokerError::NotOutstanding));
}

#[test]
fn what_is_not_finished_in_time_comes_again_later_each_time_and_is_given_up() {
    let mut broker = broker();
    broker.enqueue(eval("a", "job", 50, 1), 0);
    let mut now = 0;
    for delay in [1, 20] {
        let (_, token) = next(&mut broker, now).unwrap();
        assert_eq!(broker.next_due(), Some(now + 60 * SECOND));
        now += 60 * SECOND;
        broker.tick(now);
        assert_eq!(
            broker.nack("a", token, now),
            Err(BrokerError::NotOutstanding)
        );
        assert_eq!(next(&mut broker, now), None);
        assert_eq!(broker.next_due(), Some(now + delay * SECOND));
        now += delay * SECOND;
        broker.tick(now);
    }
    let (_, token) = next(&mut broker, now).unwrap();
    broker.nack("a", token, now).unwrap();
    assert_eq!(broker.take_failed().len(), 1);
    assert_eq!(broker.stats(), BrokerStats::default());
}

#[test]
fn how_long_evaluations_wait_and_are_worked_on_is_measured() {
    let (telemetry, recorder) =
        crate::telemetry::build(&crate::telemetry::TelemetryOptions::default());
    metrics::with_local_recorder(&recorder, || {
        let mut broker = broker();
        broker.enqueue(eval("a", "job", 50, 1), 0);
        broker.enqueue(eval("b", "job", 50, 2), 0);
        let (_, token) = next(&mut broker, 3 * SECOND).unwrap();
        broker.ack("a", token, 7 * SECOND).unwrap();
        // It could not be given out before the one of its job was done.
        let (_, token) = next(&mut broker, 8 * SECOND).unwrap();
        broker.nack("b", token, 9 * SECOND).unwrap();
        broker.tick(10 * SECOND);
        let (_, token) = next(&mut broker, 15 * SECOND).unwrap();
        broker.ack("b", token, 16 * SECOND).unwrap();
        let mut later = eval("c", "other", 50, 3);
        later.wait_until = drover_events::gojson::Time(30 * SECOND);
        broker.enqueue(later, 16 * SECOND);
        broker.tick(18 * SECOND);
    });
    let text = telemetry.prometheus();
    for (name, count, sum) in [
        ("wait_time", 3, 3_000 + 1_000 + 5_000),
        ("process_time", 2, 4_000 + 1_000),
        ("response_time", 2, 7_000 + 6_000),
    ] {
        let reported = |what: &str| {
            let begin = format!("nomad_nomad_broker_{name}_{what}{{");
            let line = text.lines().find(|line| line.starts_with(&begin));
            let line = line.unwrap_or_else(|| panic!("no {begin} in {text}"));
            assert!(line.contains("eval_type=\"service\""), "{line}");
            assert!(
                !line.contains("namespace"),
                "of those there is no end: {line}"
            );
            line.rsplit(' ')
                .next()
                .and_then(|value| value.parse::<f64>().ok())
        };
        assert_eq!(reported("count"), Some(f64::from(count)), "{name}");
        assert_eq!(reported("sum"), Some(f64::from(sum)), "{name}");
    }
    let waits = "nomad_nomad_broker_eval_waiting{eval_id=\"c\",job=\"other\",\
                 namespace=\"default\"} 12";
    assert!(text.lines().any(|line| line == waits), "{text}");
}

#[test]
fn a_paused_clock_does_not_run_out() {
    let mut broker = broker();
    broker.enqueue(eval("a", "job", 50, 1), 0);
    let (_, token) = next(&mut broker, 0).unwrap();
    broker.pause("a", token).unwrap();
    broker.tick(1000 * SECOND);
    broker.is_outstanding("a", token).unwrap();
    broker.resume("a", token, 1000 * SECOND).unwrap();
    broker.tick(1060 * SECOND);
    assert!(broker.is_outstanding("a", token).is_err());
}

#[test]
fn an_evaluation_waits_for_its_time() {
    let mut broker = broker();
    let mut later = eval("a", "job", 50, 1);
    later.wait_until = Time(5 * SECOND);
    broker.enqueue(later, 0);
    assert_eq!(next(&mut broker, 0), None);
    broker.tick(5 * SECOND);
    assert_eq!(next(&mut broker, 5 * SECOND).unwrap().0, "a");
}

#[test]
fn what_waits_for_a_while_does_not_wait_longer_where_another_server_leads() {
    let mut later = eval("a", "job", 50, 1);
    later.wait = 5 * SECOND;
    let mut long = broker();
    long.enqueue(later.clone(), SECOND);
    assert_eq!(long.next_due(), Some(6 * SECOND), "nothing says since when");
    later.wait_until = Time(5 * SECOND);
    let mut broker = broker();
    broker.enqueue(later, 4 * SECOND);
    assert_eq!(broker.next_due(), Some(5 * SECOND));
}

#[test]
fn a_newer_copy_of_what_is_worked_on_comes_again_afterwards() {
    let mut broker = broker();
    broker.enqueue(eval("a", "job", 50, 1), 0);
    let (_, token) = next(&mut broker, 0).unwrap();
    broker.enqueue(eval("a", "job", 50, 1), 0);
    broker.enqueue(eval("a", "job", 50, 7), 0);
    broker.ack("a", token, 0).unwrap();
    let (again, _) = broker.dequeue(&["service"], 0).unwrap();
    assert_eq!(again.modify_index, 7);
    broker.enqueue(eval("a", "job", 50, 7), 0);
    let token = broker.tokens;
    broker.ack("a", token, 0).unwrap();
    assert_eq!(next(&mut broker, 0), None, "the same copy was worked on");
}

#[test]
fn what_was_done_in_the_end_begins_anew() {
    let mut broker = broker();
    for _ in 0..5 {
        broker.enqueue(eval("a", "job", 50, 1), 0);
        let (_, token) = next(&mut broker, 0).unwrap();
        broker.ack("a", token, 0).unwrap();
    }
    broker.enqueue(eval("a", "job", 50, 1), 0);
    let (_, token) = next(&mut broker, 0).unwrap();
    broker.nack("a", token, 0).unwrap();
    assert_eq!(broker.take_failed(), [], "it failed once");
    assert_eq!(broker.stats().waiting, 1);
}

#[test]
fn what_is_put_off_is_never_given_up_and_only_by_who_has_it() {
    let mut broker = broker();
    broker.enqueue(eval("a", "job", 50, 1), 0);
    for now in 0..20 {
        let (_, token) = next(&mut broker, now).unwrap();
        let wrong = broker.postpone("a", token + 1, now, 1);
        assert_eq!(wrong, Err(BrokerError::WrongToken));
        broker.is_outstanding("a", token).unwrap();
        broker.postpone("a", token, now, 1).unwrap();
        assert_eq!(next(&mut broker, now), None, "its time has not come");
        broker.tick(now + 1);
    }
    let (_, token) = next(&mut broker, 20).unwrap();
    broker.nack("a", token, 20).unwrap();
    assert_eq!(broker.take_failed(), []);
}

#[test]
fn a_deleted_evaluation_lets_the_next_of_its_job_go() {
    let mut broker = broker();
    broker.enqueue(eval("a", "job", 50, 1), 0);
    broker.enqueue(eval("b", "job", 50, 2), 0);
    broker.forget("a");
    assert_eq!(next(&mut broker, 0).unwrap().0, "b");
}

#[test]
fn what_waits_is_forgotten_alone() {
    let mut broker = broker();
    for (id, at) in [("a", 3), ("b", 5)] {
        let mut later = eval(id, id, 50, 1);
        later.wait_until = Time(at);
        broker.enqueue(later, 0);
    }
    broker.forget("a");
    assert_eq!((broker.next_due(), broker.stats().waiting), (Some(5), 1));
    broker.tick(5);
    assert_eq!(next(&mut broker, 5).unwrap().0, "b");

    for (id, index) in [("c", 1), ("d", 2), ("e", 3)] {
        broker.enqueue(eval(id, "job", 50, index), 0);
    }
    assert_eq!(broker.ready_of(&["batch"]), 0);
    assert_eq!(broker.ready_of(&["batch", "service"]), 1);
    let (_, token) = next(&mut broker, 0).unwrap();
    assert_eq!(broker.by_type()["service"], (0, 2));
    broker.forget("e");
    broker.ack("c", token, 0).unwrap();
    assert_eq!(broker.by_type()["service"], (1, 1));
    assert_eq!(next(&mut broker, 0).unwrap().0, "d", "the newest there is");
    assert_eq!(broker.take_cancelable(10), []);
}

#[test]
fn the_next_of_a_job_goes_where_the_one_that_was_to_come_again_is_deleted() {
    let give_back = [Broker::nack, |broker: &mut Broker, id: &str, token, now| {
        broker.postpone(id, token, now, 7)
    }];
    for give_back in give_back {
        let mut broker = broker();
        broker.enqueue(eval("a", "job", 50, 1), 0);
        let (_, token) = next(&mut broker, 0).unwrap();
        broker.enqueue(eval("b", "job", 50, 2), 0);
        give_back(&mut broker, "a", token, 0).unwrap();
        broker.forget("a");
        assert_eq!(next(&mut broker, 0).unwrap().0, "b");
    }
}

#[test]
fn eval_09_a_paused_broker_takes_nothing() {
    let mut broker = broker();
    broker.enqueue(eval("a", "job", 50, 1), 0);
    broker.disable();
    broker.enqueue(eval("b", "job", 50, 2), 0);
    assert_eq!(next(&mut broker, 0), None);
    assert_eq!(broker.stats(), BrokerStats::default());
}
