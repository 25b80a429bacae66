//! Sequences of random block operations, compared with a model in plain vectors.

use crate::setup::{Run, Setup};
use memonet_core::{Job, Result};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::ops::Range;
use std::sync::Arc;

on_every_fabric!(
    [also on recorded]
    blocks_do_what_a_vector_does
);

const LEN: usize = 64;

#[derive(Debug, Clone)]
enum Step {
    Put { index: usize, values: Vec<u16> },
    PutNbi { index: usize, from: Range<usize> },
    Transfer { index: usize, from: Range<usize>, times: usize },
    PutStrided { index: usize, stride: usize, from_stride: usize, values: Vec<u16>, count: usize },
    PutIndexed { indices: Vec<usize>, values: Vec<u16> },
    Store { index: usize, value: u16 },
    Swap { index: usize, value: u16 },
    Get { from: Range<usize> },
    GetStrided { index: usize, stride: usize, to_stride: usize, count: usize },
    GetIndexed { indices: Vec<usize> },
}

fn range() -> impl Strategy<Value = Range<usize>> {
    (0..=LEN, 0..=LEN).prop_map(|(a, b)| a.min(b)..a.max(b))
}

fn values(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), len)
}

fn strided() -> impl Strategy<Value = (usize, usize, usize, usize)> {
    (0..LEN, 1..9usize, 1..5usize).prop_flat_map(|(index, stride, other)| {
        let most = (LEN - 1 - index) / stride + 1;
        (Just(index), Just(stride), Just(other), 0..=most)
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        range()
            .prop_flat_map(|r| (Just(r.start), values(r.len())))
            .prop_map(|(index, values)| Step::Put { index, values }),
        (range(), any::<prop::sample::Index>())
            .prop_map(|(from, i)| Step::PutNbi { index: i.index(LEN - from.len() + 1), from }),
        (range(), any::<prop::sample::Index>(), 1..4usize).prop_map(|(from, i, times)| {
            Step::Transfer { index: i.index(LEN - from.len() + 1), from, times }
        }),
        strided()
            .prop_flat_map(|(index, stride, from_stride, count)| {
                (
                    Just((index, stride, from_stride, count)),
                    values(count.saturating_sub(1) * from_stride + 1),
                )
            })
            .prop_map(|((index, stride, from_stride, count), values)| Step::PutStrided {
                index,
                stride,
                from_stride,
                values,
                count
            }),
        // Without repetition: of two values for one place, either may win.
        Just((0..LEN).collect::<Vec<_>>())
            .prop_shuffle()
            .prop_flat_map(|all| (0..=LEN).prop_map(move |len| all[..len].to_vec()))
            .prop_flat_map(|indices| (Just(indices.clone()), values(indices.len())))
            .prop_map(|(indices, values)| Step::PutIndexed { indices, values }),
        (0..LEN, any::<u16>()).prop_map(|(index, value)| Step::Store { index, value }),
        (0..LEN, any::<u16>()).prop_map(|(index, value)| Step::Swap { index, value }),
        range().prop_map(|from| Step::Get { from }),
        strided().prop_map(|(index, stride, to_stride, count)| Step::GetStrided {
            index,
            stride,
            to_stride,
            count
        }),
        prop::collection::vec(0..LEN, 0..LEN).prop_map(|indices| Step::GetIndexed { indices }),
    ]
}

/// PE 0 does all operations on PE 1's part.
fn act(job: &Job, source_values: &[u16], steps: &[Step]) -> Result<()> {
    let (target, source) = (job.window::<u16>(LEN)?, job.window::<u16>(LEN)?);
    source.write_from(0, source_values);
    let mut model = vec![0u16; LEN];
    if job.pe() == 0 {
        for step in steps {
            apply(job, &target, &source, source_values, &mut model, step)?;
        }
    }
    job.barrier()?;
    if job.pe() == 1 {
        for step in steps {
            // These steps on the model alone.
            change(&mut model, source_values, step);
        }
        assert_eq!(target.to_vec(), model);
    }
    job.barrier()
}

/// One step on the window and on the model. A read must give the model's values.
fn apply(
    job: &Job,
    target: &memonet_core::Window<u16>,
    source: &memonet_core::Window<u16>,
    source_values: &[u16],
    model: &mut [u16],
    step: &Step,
) -> Result<()> {
    change(model, source_values, step);
    match step {
        Step::Put { index, values } => target.put(1, *index, values)?,
        Step::PutNbi { index, from } => target.put_nbi(1, *index, source, from.clone())?,
        Step::Transfer { index, from, times } => {
            let mut transfer = target.prepare(1, *index, source, from.clone())?;
            for _ in 0..*times {
                transfer.start()?;
                transfer.wait()?;
            }
        }
        Step::PutStrided { index, stride, from_stride, values, count } => {
            target.put_strided(1, *index, *stride, values, *from_stride, *count)?;
        }
        Step::PutIndexed { indices, values } => target.put_indexed(1, indices, values)?,
        Step::Store { index, value } => target.remote(1, *index)?.store(*value),
        Step::Swap { index, value } => drop(target.remote(1, *index)?.swap(*value)?),
        Step::Get { from } => {
            job.quiet()?;
            let mut seen = vec![0; from.len()];
            target.get(1, from.start, &mut seen)?;
            assert_eq!(seen, model[from.clone()]);
        }
        Step::GetStrided { index, stride, to_stride, count } => {
            job.quiet()?;
            let mut seen = vec![0xAAAA; count * to_stride];
            target.get_strided(1, *index, *stride, &mut seen, *to_stride, *count)?;
            for (i, value) in seen.into_iter().enumerate() {
                let expected =
                    if i % to_stride == 0 { model[index + i / to_stride * stride] } else { 0xAAAA };
                assert_eq!(value, expected, "element {i}");
            }
        }
        Step::GetIndexed { indices } => {
            job.quiet()?;
            let mut seen = vec![0; indices.len()];
            target.get_indexed(1, indices, &mut seen)?;
            assert_eq!(seen, indices.iter().map(|&i| model[i]).collect::<Vec<_>>());
        }
    }
    // Only fences order operations.
    job.fence()
}

fn change(model: &mut [u16], source: &[u16], step: &Step) {
    match step {
        Step::Put { index, values } => model[*index..*index + values.len()].copy_from_slice(values),
        Step::PutNbi { index, from } | Step::Transfer { index, from, .. } => {
            model[*index..*index + from.len()].copy_from_slice(&source[from.clone()]);
        }
        Step::PutStrided { index, stride, from_stride, values, count } => {
            (0..*count).for_each(|i| model[index + i * stride] = values[i * from_stride]);
        }
        Step::PutIndexed { indices, values } => {
            indices.iter().zip(values).for_each(|(&i, &value)| model[i] = value)
        }
        Step::Store { index, value } | Step::Swap { index, value } => model[*index] = *value,
        Step::Get { .. } | Step::GetStrided { .. } | Step::GetIndexed { .. } => {}
    }
}

fn blocks_do_what_a_vector_does(setup: Setup) {
    let config = Config { cases: 40, failure_persistence: None, ..Config::default() };
    // Fixed cases: a failure must repeat itself.
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let strategy = (values(LEN), prop::collection::vec(step(), 1..25), any::<u8>());
    runner
        .run(&strategy, |(source, steps, seed)| {
            let (source, steps) = (Arc::new(source), Arc::new(steps));
            let run = Run { npes: 2, setup, seed: seed.into() };
            run.job(move |job| act(job, &source, &steps));
            Ok(())
        })
        .unwrap();
}
