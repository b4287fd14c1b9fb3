"""Workers that do not hold an open against what they serve: digests, labels, layers, names.

These mutants break OPEN-04 to -07 and -12.
"""

from __future__ import annotations

from typing import ClassVar

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused
from pytest_meshnet.reference.catalogue import mutant

# Digests ----------------------------------------------------------------------------------------


class _OneDigest(Rules):
    digest: ClassVar[str]

    def differs(self, offered: pb.Fingerprint) -> bool:
        return bool(getattr(offered, self.digest) != getattr(self.served.fingerprint, self.digest))

    def excused(self, offered: pb.Fingerprint) -> pb.Fingerprint:
        """The offer with the digest that is served."""
        copy = pb.Fingerprint()
        copy.CopyFrom(offered)
        setattr(copy, self.digest, getattr(self.served.fingerprint, self.digest))
        return copy


class _Ignored(_OneDigest):
    def check_fingerprint(self, offered: pb.Fingerprint) -> None:
        missing = not getattr(offered, self.digest)
        super().check_fingerprint(offered if missing else self.excused(offered))


class _ByItsStart(_OneDigest):
    def check_fingerprint(self, offered: pb.Fingerprint) -> None:
        start = getattr(self.served.fingerprint, self.digest)[:12]
        alike = getattr(offered, self.digest).startswith(start)
        super().check_fingerprint(self.excused(offered) if alike else offered)


class _Miscoded(_OneDigest):
    def check_fingerprint(self, offered: pb.Fingerprint) -> None:
        if self.differs(offered):
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "another digest", terminal=True)
        super().check_fingerprint(offered)


class _Retryable(_OneDigest):
    def check_fingerprint(self, offered: pb.Fingerprint) -> None:
        if self.differs(offered):
            code = pb.ERROR_CODE_FINGERPRINT_MISMATCH
            raise Refused(code, "another digest", retryable=True, terminal=True)
        super().check_fingerprint(offered)


class _Late(_OneDigest):
    def check_open(self, message: pb.SessionOpen) -> None:
        copy = pb.SessionOpen()
        copy.CopyFrom(message)
        if getattr(message.fingerprint, self.digest):
            copy.fingerprint.CopyFrom(self.excused(message.fingerprint))
        super().check_open(copy)


@mutant("OPEN-04")
class IgnoresTheArtifact(_Ignored):
    """The artifact digest is not looked at."""

    digest = "model_artifact_digest"


@mutant("OPEN-04")
class ComparesTheStartOfTheArtifact(_ByItsStart):
    """Artifact digests that begin alike are taken for equal."""

    digest = "model_artifact_digest"


@mutant("OPEN-04")
class ArtifactMismatchIsCorrupt(_Miscoded):
    """Another artifact digest is refused, but as a corrupt payload."""

    digest = "model_artifact_digest"


@mutant("OPEN-04")
class ArtifactMismatchIsRetryable(_Retryable):
    """Another artifact digest is refused as if trying again could help."""

    digest = "model_artifact_digest"


@mutant("OPEN-04")
class ChecksTheArtifactLate(_Late):
    """The artifact digest is looked at when the first chunk comes."""

    digest = "model_artifact_digest"


@mutant("OPEN-05")
class IgnoresTheRecipe(_Ignored):
    """The recipe digest is not looked at."""

    digest = "runtime_recipe_digest"


@mutant("OPEN-05")
class ComparesTheStartOfTheRecipe(_ByItsStart):
    """Recipe digests that begin alike are taken for equal."""

    digest = "runtime_recipe_digest"


@mutant("OPEN-05")
class RecipeMismatchIsCorrupt(_Miscoded):
    """Another recipe digest is refused, but as a corrupt payload."""

    digest = "runtime_recipe_digest"


@mutant("OPEN-05")
class RecipeMismatchIsRetryable(_Retryable):
    """Another recipe digest is refused as if trying again could help."""

    digest = "runtime_recipe_digest"


@mutant("OPEN-05")
class ChecksTheRecipeLate(_Late):
    """The recipe digest is looked at when the first chunk comes."""

    digest = "runtime_recipe_digest"


# Labels -----------------------------------------------------------------------------------------


class _ComparesLabels(Rules):
    label: ClassVar[str]

    def check_fingerprint(self, offered: pb.Fingerprint) -> None:
        super().check_fingerprint(offered)
        if getattr(offered, self.label) != getattr(self.served.fingerprint, self.label):
            code = pb.ERROR_CODE_FINGERPRINT_MISMATCH
            raise Refused(code, f"another {self.label}", terminal=True)


@mutant("OPEN-06")
class ComparesTheRecipeId(_ComparesLabels):
    """Another recipe_id is refused though the digests are equal."""

    label = "recipe_id"


@mutant("OPEN-06")
class ComparesTheRecipeVersion(_ComparesLabels):
    """Another recipe_version is refused though the digests are equal."""

    label = "recipe_version"


@mutant("OPEN-06")
class ComparesTheCatalogueVersion(_ComparesLabels):
    """Another catalogue_version is refused though the digests are equal."""

    label = "catalogue_version"


# Layers -----------------------------------------------------------------------------------------


@mutant("OPEN-07")
class IgnoresTheEndLayer(Rules):
    """The end of the range is not looked at."""

    def check_served_range(self, offered: pb.ShardRange) -> None:
        if offered.start_layer != self.served.start_layer:
            super().check_served_range(offered)


@mutant("OPEN-07")
class IgnoresTheStartLayer(Rules):
    """The start of the range is not looked at."""

    def check_served_range(self, offered: pb.ShardRange) -> None:
        if offered.end_layer != self.served.end_layer:
            super().check_served_range(offered)


@mutant("OPEN-07")
class TakesLargerRanges(Rules):
    """A range that holds the served one is accepted."""

    def check_served_range(self, offered: pb.ShardRange) -> None:
        served = self.served
        if offered.start_layer > served.start_layer or offered.end_layer < served.end_layer:
            super().check_served_range(offered)


@mutant("OPEN-07")
class TakesSmallerRanges(Rules):
    """A range within the served one is accepted."""

    def check_served_range(self, offered: pb.ShardRange) -> None:
        served = self.served
        if offered.start_layer < served.start_layer or offered.end_layer > served.end_layer:
            super().check_served_range(offered)


@mutant("OPEN-07")
class RangeMismatchIsCorrupt(Rules):
    """A range that is not served is refused, but as a corrupt payload."""

    def check_served_range(self, offered: pb.ShardRange) -> None:
        try:
            super().check_served_range(offered)
        except Refused as refused:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, refused.detail) from None


@mutant("OPEN-07")
class ChecksTheRangeLate(Rules):
    """A range that is not served is refused when the first chunk comes."""

    def check_range(self, offered: pb.ShardRange) -> None:
        pass


@mutant("OPEN-07")
class StartsAtTheEnd(Rules):
    """The end of the range is accepted as an effective start."""

    def check_effective_start(self, offered: pb.ShardRange) -> None:
        if offered.effective_start_layer != self.served.end_layer:
            super().check_effective_start(offered)


@mutant("OPEN-07")
class StartsBeforeTheRange(Rules):
    """An effective start before the range is accepted."""

    def check_effective_start(self, offered: pb.ShardRange) -> None:
        if offered.effective_start_layer >= self.served.start_layer:
            super().check_effective_start(offered)


@mutant("OPEN-07")
class EffectiveStartIsCorrupt(Rules):
    """An effective start outside the range is refused, but as a corrupt payload."""

    def check_effective_start(self, offered: pb.ShardRange) -> None:
        try:
            super().check_effective_start(offered)
        except Refused as refused:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, refused.detail) from None


# Nothing to match -------------------------------------------------------------------------------


@mutant("OPEN-12")
class TakesNoFingerprintForItsOwn(Rules):
    """An open without a fingerprint is taken for one of the model served."""

    def check_fingerprint(self, offered: pb.Fingerprint) -> None:
        if offered.model_artifact_digest or offered.runtime_recipe_digest:
            super().check_fingerprint(offered)


@mutant("OPEN-12")
class TakesNoRecipeForItsOwn(Rules):
    """An open without a recipe digest is compared by its artifact alone."""

    def check_fingerprint(self, offered: pb.Fingerprint) -> None:
        served = self.served.fingerprint
        artifact_only = offered.model_artifact_digest == served.model_artifact_digest
        if offered.runtime_recipe_digest or not artifact_only:
            super().check_fingerprint(offered)


@mutant("OPEN-12")
class TakesNoRangeForItsOwn(Rules):
    """An open without a range is taken for one of the layers served."""

    def check_range(self, offered: pb.ShardRange) -> None:
        if offered.end_layer != 0:
            super().check_range(offered)


@mutant("OPEN-12")
class ServesTheNameless(Rules):
    """An open without a session id is accepted."""

    def check_session_id(self, session_id: str) -> None:
        pass


@mutant("OPEN-12")
class NamelessWithoutCode(Rules):
    """An open without a session id is refused, but with no code."""

    def check_session_id(self, session_id: str) -> None:
        if not session_id:
            raise Refused(pb.ERROR_CODE_UNSPECIFIED, "no session id")


@mutant("OPEN-12")
class NoFingerprintIsInternal(Rules):
    """An open without a fingerprint is refused as a fault of the worker."""

    def check_fingerprint(self, offered: pb.Fingerprint) -> None:
        if not offered.model_artifact_digest:
            raise Refused(pb.ERROR_CODE_INTERNAL, "no digest")
        super().check_fingerprint(offered)


@mutant("OPEN-12")
class NoRangeWithoutCode(Rules):
    """An open without a range is refused, but with no code."""

    def check_range(self, offered: pb.ShardRange) -> None:
        if offered.end_layer == 0:
            raise Refused(pb.ERROR_CODE_UNSPECIFIED, "no range")
        super().check_range(offered)
