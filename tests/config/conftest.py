"""One set of certificates for all tests."""

import shutil

import pytest

from tests.config.certificates import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if not shutil.which("openssl"):
        pytest.skip("the openssl command is not on PATH")
    return Certificates(tmp_path_factory.mktemp("certificates"))
