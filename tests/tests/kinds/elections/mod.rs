//! Elections and latches: what is announced beside the locks. Each case of `stores!` runs on each kind of store.

mod faults;
mod latch;
mod observe;
mod rig;
mod run;
mod terms;

/// A module of tests for each kind of store, with each of these cases by its own name.
macro_rules! stores {
    (@one $store:ident: $($topic:ident { $($case:ident),+ $(,)? })+) => {
        mod $store {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::elections::rig::on(crate::rig::Rig::$store().await, crate::elections::$topic::$case).await;
                }
            )+)+
        }
    };
    ($($cases:tt)+) => {
        stores! { @one memory: $($cases)+ }
        stores! { @one server: $($cases)+ }
        stores! { @one connection: $($cases)+ }
        stores! { @one sentinel: $($cases)+ }
        stores! { @one cluster: $($cases)+ }
        stores! { @one quorum: $($cases)+ }
    };
}

stores! {
    terms {
        the_next_leader_has_a_larger_term,
        a_candidate_that_withdraws_leaves_the_queue,
        no_default_wait_ends_a_campaign,
        a_campaign_with_a_limit_ends_and_leaves_the_queue,
        a_lock_and_an_election_of_one_name_exclude_each_other,
    }
    observe {
        observers_see_each_leader_with_its_term,
        a_dead_leader_is_seen_to_be_gone,
        a_stream_ends_with_its_manager,
    }
    run {
        a_body_that_ends_ends_the_run,
        a_lost_leadership_drops_the_body_and_campaigns_again,
    }
    latch {
        an_id_counts_once_and_the_last_opens,
        a_waiter_that_comes_late_finds_it_open,
        tasks_that_count_at_a_time_open_it_once,
        another_number_of_counts_is_an_error,
        a_wait_ends_with_its_limit_and_its_manager,
    }
}
