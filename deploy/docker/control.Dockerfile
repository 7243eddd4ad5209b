# Autoscaler, dashboard, operator and command line: all of elasticd but what imports torch or numpy. And
# chaos in a cluster (deploy/kustomize/chaos), which is no part of the package.
#   docker build -f deploy/docker/control.Dockerfile -t elasticd:0.1.0 .
ARG BASE=python:3.12.12-slim-bookworm
FROM ${BASE} AS build
COPY . /src
# Nobody here imports the client's asynchronous half, which is 50 MB with what it alone needs.
RUN python3 -m venv --without-pip /opt/elasticd \
    && python3 -m pip --python /opt/elasticd/bin/python3 install --no-cache-dir \
      -c /src/constraints.txt etcd3 grpcio protobuf kubernetes structlog fsspec xxhash click \
      rich urllib3 \
    && python3 -m pip --python /opt/elasticd/bin/python3 install --no-cache-dir --no-deps /src \
    && python3 -m pip --python /opt/elasticd/bin/python3 uninstall --yes aiohttp aiosignal yarl \
      multidict frozenlist propcache aiohappyeyeballs attrs \
    && rm -r /opt/elasticd/lib/python3.*/site-packages/kubernetes/aio \
    && cd /opt/elasticd/lib/python3.*/site-packages && mkdir chaos \
    && cp -r /src/chaos/__init__.py /src/chaos/error.py /src/chaos/cluster chaos
FROM ${BASE}
LABEL org.opencontainers.image.title="elasticd" \
      org.opencontainers.image.description="elasticd without torch: autoscaler, dashboard, CLI" \
      org.opencontainers.image.version="0.1.0" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/elasticd /opt/elasticd
# HEALTH_URL is the autoscaler's; give another command its own.
ENV PATH=/opt/elasticd/bin:${PATH} HEALTH_URL=http://127.0.0.1:9481/healthz
USER 65532:65532
HEALTHCHECK --interval=30s --timeout=30s CMD ["python3", "-c", "import os, urllib.request as r; r.urlopen(os.environ['HEALTH_URL'], timeout=25)"]
ENTRYPOINT ["elasticd"]
CMD ["--help"]
