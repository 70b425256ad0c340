//! Which engine the daemon would take on this machine for a plan, and why not another.

use audit::plan::Plan;
use engine::{Engine, EngineKind, EngineOptions, KernelProbe, ObjectStorage};
use nix::unistd::geteuid;

use crate::config::tollgate_toml::EngineChoice;
use crate::messages;

/// Why the engine is not known.
const NOT_ROOT: &str =
    "only root can find out which engine this machine takes: run the command as root";
/// Size of the ring while programs are loaded to see whether they can be.
const RING_BYTES: u32 = 1 << 20;

/// An engine that refuses a plan, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefusedEngine {
    pub(super) engine: EngineKind,
    pub(super) reason: String,
}

/// Which engine the daemon would take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ThisMachineEngine {
    /// This one, and why not those before it.
    Known(EngineKind, Vec<RefusedEngine>),
    /// None: the daemon would not start.
    NoEngine(Vec<RefusedEngine>),
    /// It is not known: why.
    Unknown(String),
}

impl ThisMachineEngine {
    /// Loads the programs of the plan, as a daemon with this choice of engine does, without attaching them.
    pub(super) fn find(
        probe: &anyhow::Result<KernelProbe>,
        plan: &Plan,
        choice: EngineChoice,
        allow_loss: bool,
    ) -> Self {
        if !geteuid().is_root() {
            return Self::Unknown(NOT_ROOT.to_owned());
        }
        let probe = match probe {
            Ok(probe) => probe,
            Err(error) => return Self::Unknown(format!("{error:#}")),
        };
        Self::of(choice, |engine| {
            let mut storage = ObjectStorage::default();
            let options = EngineOptions {
                ring_bytes: RING_BYTES,
                allow_loss,
                ..EngineOptions::default()
            };
            let checked = Engine::check(&mut storage.slots(), probe, plan, engine, options);
            checked.map(drop).map_err(|error| {
                let text = format!("{:#}", anyhow::Error::from(error));
                messages::without_errno(&text).into_owned()
            })
        })
    }

    /// The first engine that accepts the plan.
    fn of(choice: EngineChoice, mut check: impl FnMut(EngineKind) -> Result<(), String>) -> Self {
        let mut refused = Vec::new();
        for engine in choice.kinds() {
            match check(engine) {
                Ok(()) => return Self::Known(engine, refused),
                Err(reason) => refused.push(RefusedEngine { engine, reason }),
            }
        }
        Self::NoEngine(refused)
    }

    pub(super) const fn engine(&self) -> Option<EngineKind> {
        match self {
            Self::Known(engine, _) => Some(*engine),
            Self::NoEngine(_) | Self::Unknown(_) => None,
        }
    }

    pub(super) fn refused(&self) -> &[RefusedEngine] {
        match self {
            Self::Known(_, refused) | Self::NoEngine(refused) => refused,
            Self::Unknown(_) => &[],
        }
    }

    /// Lines about the engine that the explanation is for.
    pub(super) fn lines(&self, explained: EngineKind) -> Vec<String> {
        let mut lines = vec![match self {
            Self::Known(engine, _) if *engine == explained => {
                format!("the daemon takes engine {} for these rules", engine.name())
            }
            Self::Known(engine, _) => format!(
                "the daemon takes engine {} for these rules: costs and hooks above are those of {}, which it does not take",
                engine.name(),
                explained.name()
            ),
            Self::NoEngine(_) => {
                "the daemon does not start with these rules: no engine takes them".to_owned()
            }
            Self::Unknown(reason) => reason.clone(),
        }];
        let refused = self.refused().iter();
        lines.extend(refused.map(|one| format!("not {}: {}", one.engine.name(), one.reason)));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_engine_that_takes_the_rules_is_named() {
        let both = ThisMachineEngine::of(EngineChoice::Auto, |_| Ok(()));
        assert_eq!(both.engine(), Some(EngineKind::Fentry));
        assert_eq!(
            both.lines(EngineKind::Fentry),
            ["the daemon takes engine fentry for these rules"]
        );
        let tracepoint = ThisMachineEngine::of(EngineChoice::Auto, |engine| match engine {
            EngineKind::Fentry => Err("the rules need 300 hooks".to_owned()),
            EngineKind::Lsm => Err("the engine lsm needs kprobes".to_owned()),
            EngineKind::Tracepoint => Ok(()),
        });
        assert_eq!(tracepoint.engine(), Some(EngineKind::Tracepoint));
        let lines = tracepoint.lines(EngineKind::Fentry);
        assert!(
            lines[0].contains("takes engine tracepoint")
                && lines[0].contains("those of fentry, which it does not take")
        );
        assert_eq!(
            lines[1..],
            [
                "not fentry: the rules need 300 hooks",
                "not lsm: the engine lsm needs kprobes"
            ]
        );
        let none =
            ThisMachineEngine::of(EngineChoice::Auto, |engine| Err(engine.name().to_owned()));
        assert_eq!((none.engine(), none.refused().len()), (None, 3));
        assert!(none.lines(EngineKind::Fentry)[0].contains("does not start"));
    }
}
