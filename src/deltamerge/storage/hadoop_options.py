"""Options of an object store under Hadoop's names, as scripts for delta-spark pass them, under obstore's."""

from __future__ import annotations

import re
from collections.abc import Mapping

_S3A: dict[str, str] = {
    "fs.s3a.access.key": "access_key_id",
    "fs.s3a.secret.key": "secret_access_key",
    "fs.s3a.session.token": "session_token",
    "fs.s3a.endpoint.region": "region",
}
_ENDPOINT = "fs.s3a.endpoint"
_SSL = "fs.s3a.connection.ssl.enabled"
_PATH_STYLE = "fs.s3a.path.style.access"
_ACCOUNT_KEY = re.compile(r"fs\.azure\.account\.key\.([^.]+)\.(?:dfs|blob)\.core\.windows\.net")


def obstore_options(authority: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return options of a store under obstore's names.

    An option given under obstore's own name wins; the key of another Azure account is left out. `authority` is a
    bucket, or ``container@account.dfs.core.windows.net``.
    """
    translated: dict[str, str] = {}
    others: dict[str, str] = {}
    for key, value in options.items():
        account = _ACCOUNT_KEY.fullmatch(key)
        if key in _S3A:
            translated[_S3A[key]] = value
        elif key == _ENDPOINT:
            scheme = "http" if options.get(_SSL, "true").lower() == "false" else "https"
            translated["endpoint"] = value if "://" in value else f"{scheme}://{value}"
            if translated["endpoint"].startswith("http://"):
                translated["allow_http"] = "true"
        elif key == _PATH_STYLE:
            translated["virtual_hosted_style_request"] = "false" if value.lower() == "true" else "true"
        elif account is not None:
            if authority.partition("@")[2].partition(".")[0] == account.group(1):
                translated["account_key"] = value
        elif key != _SSL:
            others[key] = value
    return {**translated, **others}
