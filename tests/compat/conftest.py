"""One worker for all clients."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from assay.deploy.services import Running

from .stand import Stand, stand


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def counter(services: Running, bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    """Where checkouts ask."""
    async with stand(tmp_path_factory.mktemp("compat"), services, bundle_path) as running:
        yield running
