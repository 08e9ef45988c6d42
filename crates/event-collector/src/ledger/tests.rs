use proptest::prelude::*;

use super::*;

const KIB: u64 = 1 << 10;

fn id(n: u32) -> DispatcherId {
    DispatcherId(n)
}

/// A ledger of live dispatchers `0..n`, and what they were granted.
fn ledger(budget: u64, n: u32) -> Ledger {
    with_windows(budget, n, WindowPolicy::PerDispatcher)
}

fn with_windows(budget: u64, n: u32, windows: WindowPolicy) -> Ledger {
    let mut ledger = Ledger::with_windows(budget, windows);
    let mut out = Vec::new();
    for i in 0..n {
        ledger.add(id(i));
    }
    for i in 0..n {
        ledger.begin_epoch(id(i));
        ledger.confirm_epoch(id(i), &mut out);
    }
    assert_eq!(out.len(), n as usize, "every handshake is answered by a grant");
    ledger
}

fn open(ledger: &Ledger, n: u32) -> u64 {
    ledger.account(id(n)).map_or(0, Account::open)
}

#[test]
fn shares_of_thousands_stay_inside_the_budget() {
    let ledger = ledger(16 << 20, 2_000);
    assert_eq!(ledger.share(), (8 << 20) / 2_000);
    assert!(ledger.charged() <= 8 << 20);
    ledger.check().unwrap();
}

/// Streams come one after the other, each with its handshake: the first must not take what the later ones are to have.
#[test]
fn streams_that_begin_together_have_their_shares() {
    let budget = 13 << 20;
    let mut ledger = Ledger::new(budget);
    let mut out = Vec::new();
    for i in 0..20 {
        ledger.add(id(i));
        ledger.begin_epoch(id(i));
        ledger.confirm_epoch(id(i), &mut out);
        ledger.check().unwrap();
    }
    let share = ledger.share();
    assert_eq!(share, budget / 2 / 20);
    for i in 0..20 {
        assert_eq!(open(&ledger, i), FIRST_GRANT_MAX_BYTES, "{i}");
        assert_eq!(ledger.account(id(i)).unwrap().window(), share, "{i}");
    }
    // All scan at once, and the sink has released nothing yet: each gets up to its share.
    for i in 0..20 {
        ledger.accept(id(i), FIRST_GRANT_MAX_BYTES, false, &mut out);
        let seq = ledger.account(id(i)).map_or(0, |account| account.grant_seq);
        ledger.demand(id(i), 0, seq, &mut out);
        assert!(
            ledger.account(id(i)).unwrap().charge() <= share.max(FIRST_GRANT_MAX_BYTES),
            "{i}"
        );
    }
    ledger.check().unwrap();
}

/// A window that has grown stays what it is when other tables come; one that has not is the share.
#[test]
fn tables_that_come_take_no_window_that_has_grown() {
    let mut ledger = ledger(64 << 20, 2);
    let mut out = Vec::new();
    let window = |ledger: &Ledger, n| ledger.account(id(n)).map_or(0, Account::window);
    let seq = ledger.account(id(0)).map_or(0, |account| account.grant_seq);
    ledger.demand(id(0), 6 << 20, seq, &mut out);
    assert_eq!(
        (window(&ledger, 0), window(&ledger, 1)),
        (6 << 20, ledger.share())
    );
    for n in 2..100 {
        ledger.add(id(n));
    }
    assert!(ledger.share() < 1 << 20);
    assert_eq!(
        (window(&ledger, 0), window(&ledger, 1)),
        (6 << 20, ledger.share())
    );
    ledger.check().unwrap();
}

#[test]
fn a_fixed_window_is_a_tenth_for_whoever_asks_and_nothing_is_kept_for_others() {
    assert_eq!(WindowPolicy::default(), WindowPolicy::PerDispatcher);
    let budget = 10 << 20;
    let mut ledger = Ledger::with_windows(budget, WindowPolicy::Fixed);
    let mut out = Vec::new();
    for i in 0..20 {
        ledger.add(id(i));
    }
    for i in 0..20 {
        ledger.begin_epoch(id(i));
        ledger.confirm_epoch(id(i), &mut out);
    }
    let seq = |ledger: &Ledger, i| ledger.account(id(i)).map_or(0, |account| account.grant_seq);
    for i in 0..20 {
        let seq = seq(&ledger, i);
        ledger.demand(id(i), 100, seq, &mut out);
        assert!(open(&ledger, i) <= budget / 10);
    }
    assert_eq!(open(&ledger, 0), budget / 10, "at once, without having drained");
    assert!(open(&ledger, 19) < budget / 10, "what came first is gone");
    ledger.check().unwrap();
}

#[test]
fn a_drained_window_is_filled_in_bulk_and_grows_on_demand() {
    let mut ledger = ledger(1 << 20, 4);
    let share = ledger.share();
    let mut out = Vec::new();
    ledger.accept(id(0), share, false, &mut out);
    ledger.demand(id(0), 100, 1, &mut out);
    assert_eq!(
        out.last().map(|g| g.granted),
        Some(2 * share),
        "it drains: the window doubles"
    );
    ledger.accept(id(0), share, false, &mut out);
    out.clear();
    ledger.demand(id(0), 100, 2, &mut out);
    assert_eq!(out, [], "nothing before the sink has released something");
    ledger.release(id(0), share, false, &mut out);
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].granted, 3 * share, "half of the window came back");
    ledger.check().unwrap();
}

#[test]
fn a_demand_that_was_answered_is_told_apart() {
    let mut ledger = ledger(1 << 20, 1);
    let mut out = Vec::new();
    assert!(ledger.demand(id(0), 10, 1, &mut out));
    assert_eq!(out.len(), 1);
    assert!(!ledger.demand(id(0), 10, 1, &mut out));
    assert_eq!(out.len(), 1);
    assert!(ledger.is_behind(id(0), 1) && !ledger.is_behind(id(0), 2));
}

#[test]
fn what_an_old_epoch_has_open_stays_charged_until_the_handshake() {
    let mut ledger = ledger(1 << 20, 2);
    let share = ledger.share();
    let mut out = Vec::new();
    ledger.accept(id(0), 1_000, false, &mut out);
    let charged = ledger.charged();
    ledger.begin_epoch(id(0));
    ledger.begin_epoch(id(0));
    assert_eq!(ledger.charged(), charged);
    assert_eq!(
        ledger.account(id(0)).map(|a| (a.closing, a.held)),
        Some((share - 1_000, 1_000))
    );
    ledger.confirm_epoch(id(0), &mut out);
    assert_eq!(
        ledger.account(id(0)).map(|a| (a.closing, a.held)),
        Some((0, 1_000))
    );
    assert_eq!(open(&ledger, 0), share - 1_000, "rows in the sink stay charged");
    ledger.check().unwrap();
}

#[test]
fn the_lane_has_one_holder_and_goes_on_in_order() {
    let mut ledger = ledger(64 * KIB, 8);
    let mut out = Vec::new();
    for n in 0..3 {
        ledger.demand(id(n), 100 * KIB, 1, &mut out);
    }
    assert_eq!(
        out.iter()
            .map(|g| (g.dispatcher, g.lane_rows))
            .collect::<Vec<_>>(),
        [(id(0), 1)]
    );
    out.clear();
    ledger.accept(id(0), 100 * KIB, true, &mut out);
    assert_eq!(ledger.lane(), Lane::Held(id(0), 100 * KIB));
    assert!(
        out.iter()
            .all(|grant| grant.lane_rows == u64::from(grant.dispatcher == id(0)))
    );
    ledger.release(id(0), 100 * KIB, true, &mut out);
    assert_eq!(ledger.lane(), Lane::Granted(id(1)));
    ledger.remove(id(1), &mut out);
    assert_eq!(ledger.lane(), Lane::Granted(id(2)));
    ledger.begin_epoch(id(2));
    assert_eq!(ledger.lane(), Lane::Granted(id(2)), "the row may still come");
    ledger.confirm_epoch(id(2), &mut out);
    assert_eq!(ledger.lane(), Lane::Free);
    ledger.check().unwrap();
}

#[test]
fn tables_whose_sink_stands_still_leave_the_others_their_shares() {
    let (budget, n) = (1 << 20, 16);
    let mut ledger = ledger(budget, n);
    let mut out = Vec::new();
    // Half of the tables take whatever they get and never release it.
    for _ in 0..50 {
        for stuck in 0..n / 2 {
            let credit = open(&ledger, stuck);
            if credit > 0 {
                ledger.accept(id(stuck), credit, false, &mut out);
            }
            let seq = ledger.last_grant(id(stuck)).map_or(0, |grant| grant.grant_seq);
            ledger.demand(id(stuck), 1, seq, &mut out);
        }
    }
    for fine in n / 2..n {
        for _ in 0..20 {
            let credit = open(&ledger, fine);
            assert!(credit >= ledger.share() / 2, "{fine} has {credit}");
            ledger.accept(id(fine), credit, false, &mut out);
            ledger.release(id(fine), credit, false, &mut out);
        }
    }
    ledger.check().unwrap();
}

#[test]
fn idle_streams_are_asked_for_what_they_keep_too_much() {
    let mut ledger = Ledger::new(1 << 20);
    let mut out = Vec::new();
    for n in 0..64 {
        ledger.add(id(n));
        ledger.begin_epoch(id(n));
        ledger.confirm_epoch(id(n), &mut out);
    }
    assert_eq!(
        ledger.charged(),
        ledger.budget(),
        "early dispatchers got larger shares"
    );
    out.clear();
    let seq = ledger.last_grant(id(63)).map_or(0, |grant| grant.grant_seq);
    ledger.demand(id(63), 60 * KIB, seq, &mut out);
    // The lane serves the first; the second has to wait until credit comes back.
    let seq = ledger.last_grant(id(62)).map_or(0, |grant| grant.grant_seq);
    ledger.demand(id(62), 60 * KIB, seq, &mut out);
    let asked: Vec<_> = out.iter().filter(|grant| grant.keep == ledger.share()).collect();
    assert!(asked.len() > 32, "{}", asked.len());
    out.clear();
    for n in 0..3 {
        let excess = open(&ledger, n) - ledger.share();
        ledger.give_back(id(n), excess, &mut out);
    }
    assert!(out.iter().any(|grant| grant.dispatcher == id(62)), "{out:?}");
    ledger.check().unwrap();
}

#[derive(Clone, Debug)]
enum Op {
    Send(u32, u64),
    Release(u32, u64),
    Demand(u32, u64),
    GiveBack(u32, u64),
    Reset(u32),
    Confirm(u32),
    Remove(u32),
    Add(u32),
    Sweep,
}

fn op() -> impl Strategy<Value = Op> {
    let n = 0_u32..6;
    prop_oneof![
        4 => (n.clone(), 1_u64..30_000).prop_map(|(n, b)| Op::Send(n, b)),
        4 => (n.clone(), 1_u64..30_000).prop_map(|(n, b)| Op::Release(n, b)),
        4 => (n.clone(), 1_u64..90_000).prop_map(|(n, b)| Op::Demand(n, b)),
        2 => (n.clone(), 1_u64..30_000).prop_map(|(n, b)| Op::GiveBack(n, b)),
        1 => n.clone().prop_map(Op::Reset),
        1 => n.clone().prop_map(Op::Confirm),
        1 => n.clone().prop_map(Op::Remove),
        1 => n.prop_map(Op::Add),
        1 => Just(Op::Sweep),
    ]
}

/// Carries out what the service and the sink could do, and nothing else.
fn apply(ledger: &mut Ledger, op: &Op, out: &mut Vec<Grant>) {
    let account = |ledger: &Ledger, n: u32| ledger.account(id(n)).copied().unwrap_or_default();
    match *op {
        Op::Send(n, bytes) => {
            let a = account(ledger, n);
            if a.live && a.open() > 0 {
                ledger.accept(id(n), bytes.min(a.open()), false, out);
            }
        }
        Op::Release(n, bytes) => {
            let held = account(ledger, n).held;
            if held > 0 {
                ledger.release(id(n), bytes.min(held), false, out);
            }
        }
        Op::Demand(n, bytes) => {
            let a = account(ledger, n);
            if a.live && a.open() < bytes {
                ledger.demand(id(n), bytes, a.grant_seq, out);
            }
        }
        Op::GiveBack(n, bytes) => {
            let a = account(ledger, n);
            ledger.give_back(id(n), a.returned + bytes.min(a.open()), out);
        }
        Op::Reset(n) => ledger.begin_epoch(id(n)),
        Op::Confirm(n) => {
            let a = account(ledger, n);
            if !a.live && !a.gone {
                ledger.confirm_epoch(id(n), out);
            }
        }
        Op::Remove(n) => {
            if ledger.account(id(n)).is_some_and(|a| !a.gone) {
                ledger.remove(id(n), out);
            }
        }
        Op::Add(n) => {
            if ledger.account(id(n)).is_none_or(|a| a.gone) {
                ledger.add(id(n));
                ledger.begin_epoch(id(n));
                ledger.confirm_epoch(id(n), out);
            }
        }
        Op::Sweep => ledger.sweep(out),
    }
}

proptest! {
    #[test]
    fn the_books_add_up_and_every_demand_is_served_in_the_end(
        budget in 20_000_u64..200_000,
        fixed in any::<bool>(),
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let windows = if fixed { WindowPolicy::Fixed } else { WindowPolicy::PerDispatcher };
        let mut ledger = with_windows(budget, 6, windows);
        let mut out = Vec::new();
        for op in &ops {
            apply(&mut ledger, op, &mut out);
            prop_assert_eq!(ledger.check(), Ok(()));
        }
        // The sink drains, the lane with it; streams give back what they keep too much.
        for round in 0..100 {
            for n in 0..6 {
                if ledger.lane() == Lane::Granted(id(n)) {
                    ledger.accept(id(n), 100_000, true, &mut out);
                }
                if let Lane::Held(holder, bytes) = ledger.lane() {
                    ledger.release(holder, bytes, true, &mut out);
                }
                apply(&mut ledger, &Op::Release(n, u64::MAX), &mut out);
                let a = ledger.account(id(n)).copied().unwrap_or_default();
                if a.needs > 0 || round == 0 {
                    apply(&mut ledger, &Op::GiveBack(n, a.open().saturating_sub(a.keep)), &mut out);
                }
            }
            prop_assert_eq!(ledger.check(), Ok(()));
        }
        prop_assert_eq!(ledger.waiting(), 0);
        for n in 0..6 {
            let a = ledger.account(id(n)).copied().unwrap_or_default();
            prop_assert!(a.needs == 0, "{:?}", a);
        }
    }
}
