# The agent, on top of the image that has your job's torch (2.9 or newer) and Python (3.11 or newer):
#   docker build -f deploy/docker/agent.Dockerfile --build-arg BASE=IMAGE -t elasticd-agent:0.1.0 .
# numpy, protobuf, fsspec, urllib3 and torch stay as that image has them.
ARG BASE
FROM ${BASE}
# To install: the base may name a user of its own.
USER 0:0
LABEL org.opencontainers.image.title="elasticd-agent" \
      org.opencontainers.image.description="elasticd's daemon of a node, with torch" \
      org.opencontainers.image.version="0.1.0" org.opencontainers.image.licenses="Apache-2.0"
COPY . /src
RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir etcd3==0.12.0 \
      grpcio==1.85.1 structlog==26.1.0 xxhash==4.1.0 click==8.5.1 rich==15.0.0 \
      'protobuf>=4.25' 'fsspec>=2025.3' 'numpy>=1.26' 'urllib3>=2.2' \
    && PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir --no-deps /src \
    && echo 'elasticd:x:65532:65532::/var/lib/elasticd:/usr/sbin/nologin' >>/etc/passwd \
    && install -d -o 65532 -g 65532 -m 0700 /var/lib/elasticd \
    && python3 -c 'import torch; v = torch.__version__; assert tuple(map(int, v.split(".")[:2])) > (2, 8), v'
ENV HOME=/var/lib/elasticd ELASTICD_LOG_DIR=/var/lib/elasticd ELASTICD_PROBE_PORT=9482
USER 65532:65532
# Swarm replaces who fails it: a processor that workers keep busy is no reason to, so it has 30 s.
# By the container's name, which is its address: the agent does not listen on loopback.
HEALTHCHECK --interval=30s --timeout=30s --start-period=60s CMD ["python3", "-c", "import socket, urllib.request as r; r.urlopen(f'http://{socket.gethostname()}:9482/healthz', timeout=25)"]
ENTRYPOINT ["elasticd"]
CMD ["agent", "--log-json"]
