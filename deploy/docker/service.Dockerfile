# One image per service: docker build -f deploy/docker/service.Dockerfile --build-arg SERVICE=coordinator -t toban-coordinator .
# SERVICE: admin-web, coordinator, executor, log-archiver, or tools (the toban command, the migrations, certificates and secrets).
# PYTHON_IMAGE: any Debian with Python 3.11 or newer. INDEX_URL: a package index other than PyPI; it stays out of the image.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
ARG SERVICE
ARG INDEX_URL=
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1 UV_LINK_MODE=copy \
    PIP_CACHE_DIR=/cache/pip UV_CACHE_DIR=/cache/uv
COPY requirements/image-build.txt requirements/
RUN --mount=type=cache,target=/cache \
    python3 -m venv /build \
    && /build/bin/python -m pip install --quiet ${INDEX_URL:+--index-url "$INDEX_URL"} --require-hashes -r requirements/image-build.txt
COPY requirements/images/${SERVICE}.txt requirements/images/
RUN --mount=type=cache,target=/cache \
    python3 -m venv --without-pip /opt/toban \
    && /build/bin/uv pip install --quiet --python /opt/toban/bin/python ${INDEX_URL:+--default-index "$INDEX_URL"} \
       --require-hashes -r "requirements/images/${SERVICE}.txt"
COPY scripts/image-packages scripts/
COPY apps apps
COPY libs libs
COPY services services
COPY web web
COPY VERSION ./
RUN python3 scripts/image-packages "${SERVICE}" >/packages \
    && sed -i 's|^|./|' /packages \
    && xargs -a /packages /build/bin/python -m pip wheel --quiet --no-cache-dir --no-deps --no-index --no-build-isolation --wheel-dir /wheels \
    && /build/bin/uv pip install --quiet --python /opt/toban/bin/python --offline --no-deps /wheels/*.whl \
    && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/toban/lib
COPY deploy/docker/start deploy/docker/ready /opt/toban/bin/

FROM ${PYTHON_IMAGE}
ARG SERVICE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="toban-${SERVICE}" \
      org.opencontainers.image.description="Toban, distributed job execution control: ${SERVICE}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# hadolint ignore=DL3008
RUN (command -v tini >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends tini; }) \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 toban \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/toban/home --shell /usr/sbin/nologin toban \
    && install -d -o 10001 -g 10001 -m 0711 /var/lib/toban /var/lib/toban/executor \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/toban/home /run/keys /keys \
       /hand-out/admin-web /hand-out/cli /hand-out/coordinator /hand-out/executor /hand-out/log-archiver /hand-out/migrate \
    && install -d -o 10001 -g 10001 -m 0755 /hand-out/grafana /hand-out/postgres /hand-out/prometheus /hand-out/seaweedfs /hand-out/valkey \
    && ln -s /opt/toban/bin/toban /usr/local/bin/toban
COPY --from=build /opt/toban /opt/toban
COPY LICENSE /usr/share/doc/toban/LICENSE
# SSL_CERT_FILE: the PostgreSQL library contains its own OpenSSL with other default paths: sslrootcert=system would find no CA.
ENV TOBAN_SERVICE=${SERVICE} \
    LANG=C.UTF-8 \
    SSL_CERT_FILE=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt} \
    GRPC_ENABLE_FORK_SUPPORT=0 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    SCHEDULER_GRPC_HOST=0.0.0.0 \
    SCHEDULER_GRPC_PORT=50051 \
    SCHEDULER_ADMIN_HOST=0.0.0.0 \
    SCHEDULER_ADMIN_PORT=9464 \
    SCHEDULER_LOG_FORMAT=json
WORKDIR /
USER 10001:10001
EXPOSE 50051 9464
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s --retries=6 CMD ["/opt/toban/bin/ready"]
ENTRYPOINT ["/opt/toban/bin/start"]
