"""Clients for Amazon S3 and Azure Blob Storage, configured through the same variables as the vendors' own tools.

`s3://bucket/prefix` is on Amazon, or on another server given by AWS_ENDPOINT_URL. `az://container/prefix` is in the
account AZURE_STORAGE_ACCOUNT_NAME, or on another server given by AZURE_STORAGE_ENDPOINT. Credentials and region come
from the usual environment variables, files or machine role, never from the location.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from obstore.store import AzureStore, S3Store

from orchestrator.errors import StoreError

# Per request.
CONNECT_SECONDS = 5.0
ATTEMPTS = 3
CREDENTIALS: Mapping[str, str] = {
    "s3": "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the machine's role",
    "az": "check AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or the machine's identity",
}
ENDPOINTS: Mapping[str, str] = {"s3": "AWS_ENDPOINT_URL", "az": "AZURE_STORAGE_ENDPOINT"}


@dataclass(frozen=True)
class Place:
    """A bucket (on Azure, a container): the scheme, `s3` or `az`, and the bucket name."""

    scheme: str
    bucket: str

    def client(self, seconds: float) -> S3Store | AzureStore:
        """Return a client whose requests must be answered within this number of seconds."""
        if self.scheme == "az":
            return _azure(self.bucket, seconds)
        return _s3(self.bucket, seconds)


def _azure(container: str, seconds: float) -> AzureStore:
    if not os.environ.get("AZURE_STORAGE_ACCOUNT_NAME"):
        raise StoreError(
            f"cannot use az://{container}: its account is unknown; set AZURE_STORAGE_ACCOUNT_NAME, and "
            "AZURE_STORAGE_ACCOUNT_KEY or other credentials"
        )
    return AzureStore(container, **_options(os.environ.get("AZURE_STORAGE_ENDPOINT"), seconds))


def _s3(bucket: str, seconds: float) -> S3Store:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    config, provider = _profile()
    if endpoint:
        config["endpoint"] = endpoint
    return S3Store(
        bucket,
        config=config,  # type: ignore[arg-type]
        credential_provider=provider,
        **_options(endpoint, seconds),
    )


def _options(endpoint: str | None, seconds: float) -> dict[str, Any]:
    return {
        "client_options": {
            "allow_http": bool(endpoint and endpoint.startswith("http://")),
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
            "read_timeout": timedelta(seconds=seconds),
            "timeout": timedelta(days=1),  # for a whole object, as long as bytes keep arriving
        },
        "retry_config": {"max_retries": ATTEMPTS - 1, "retry_timeout": timedelta(seconds=ATTEMPTS * seconds)},
    }


def _profile() -> tuple[dict[str, str], Callable[[], Any] | None]:
    """Return the keys and region from the profile in the AWS files, or a credential provider.

    Both are empty if the environment contains keys.
    """
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return {}, None
    name = os.environ.get("AWS_PROFILE") or "default"
    files = configparser.ConfigParser(interpolation=None)
    home = Path("~/.aws").expanduser()
    paths = (("AWS_CONFIG_FILE", home / "config"), ("AWS_SHARED_CREDENTIALS_FILE", home / "credentials"))
    with suppress(configparser.Error, UnicodeDecodeError):
        files.read([os.environ.get(variable) or path for variable, path in paths])
    sections = []
    for section in (f"profile {name}", name):
        if files.has_section(section):
            sections.append(files[section])
    options = {key: value for section in sections for key, value in section.items()}
    if os.environ.get("AWS_REGION") or "region" not in options:
        region = {}
    else:
        region = {"region": options["region"]}
    if "aws_access_key_id" in options:
        keys = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        return region | {key.removeprefix("aws_"): options[key] for key in keys if key in options}, None
    if not os.environ.get("AWS_PROFILE"):
        return region, None
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider

        return region, Boto3CredentialProvider(Session(profile_name=name))
    except ImportError:
        raise StoreError(f"the AWS profile {name} contains no keys; install boto3 to sign in with it") from None
    except Exception as error:  # boto3 errors have no common base class
        raise StoreError(f"the AWS profile {name} cannot be used: {' '.join(str(error).split())}") from None
