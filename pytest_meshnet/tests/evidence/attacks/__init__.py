"""What somebody could do to a bundle, each with the result and the reason code it must get."""

from pytest_meshnet.tests.evidence.attacks.base import Attack
from pytest_meshnet.tests.evidence.attacks.on_devices_and_time import ON_DEVICES_AND_TIME
from pytest_meshnet.tests.evidence.attacks.on_documents import ON_DOCUMENTS
from pytest_meshnet.tests.evidence.attacks.on_files import ON_FILES
from pytest_meshnet.tests.evidence.attacks.on_journals import ON_JOURNALS
from pytest_meshnet.tests.evidence.attacks.on_json import ON_JSON
from pytest_meshnet.tests.evidence.attacks.on_questions import ON_QUESTIONS
from pytest_meshnet.tests.evidence.attacks.on_records import ON_RECORDS

ATTACKS: tuple[Attack, ...] = (
    *ON_FILES,
    *ON_JSON,
    *ON_DOCUMENTS,
    *ON_JOURNALS,
    *ON_RECORDS,
    *ON_DEVICES_AND_TIME,
    *ON_QUESTIONS,
)
