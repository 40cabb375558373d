"""The command knows the variables of every service: a name that none of them reads is a typing error."""

from toban_admin_web.config import AdminWebConfig
from toban_cli.cluster_config import KNOWN_VARIABLES
from toban_coordinator.config import CoordinatorConfig
from toban_executor.config import ExecutorConfig
from toban_log_archiver.config import LogArchiverConfig
from toban_runtime.config_checks import FILE_SUFFIX, is_secret, variable
from toban_signer.config import SignerConfig


def test_the_command_knows_the_variables_of_every_service() -> None:
    names = set()
    for config in (AdminWebConfig, CoordinatorConfig, ExecutorConfig, LogArchiverConfig, SignerConfig):
        for name, info in config.model_fields.items():
            names |= {variable(name)} | ({variable(name) + FILE_SUFFIX} if is_secret(info) else set())
    assert names == KNOWN_VARIABLES
