# Engram on a machine without an NVIDIA GPU:
#
#   docker build -t engram .
#   docker run --rm --shm-size=2g --user "$(id -u):$(id -g)" -e HOME=/tmp -v "$PWD:/work" \
#     engram run unique_feature --preset quickstart
#
# It runs as the user who owns the folder, since the store is written into it; that user has no home in the container.
#
# With a GPU (and NVIDIA's container toolkit): docker build --build-arg LOCK=requirements.lock -t engram .
# On Kubernetes, whose cluster takes it as it is (docs/kubernetes.md), KubeRay asks with wget whether Ray is well.
FROM python:3.12-slim

RUN apt-get update && apt-get install --yes --no-install-recommends wget && rm -rf /var/lib/apt/lists/*
ARG LOCK=requirements-cpu.lock
COPY ${LOCK} /tmp/requirements.lock
RUN pip install --no-cache-dir --no-deps --require-hashes -r /tmp/requirements.lock

COPY pyproject.toml README.md LICENSE engram_command.py /src/
COPY engram /src/engram
COPY tasks /src/tasks
COPY orchestrator /src/orchestrator
COPY dashboards /src/dashboards
RUN pip install --no-cache-dir --no-deps --no-build-isolation --no-index /src

# The store and what audits read lie in a folder of the host's.
RUN useradd --create-home engram && mkdir /work && chown engram /work
USER engram
WORKDIR /work
ENTRYPOINT ["engram"]
CMD ["--help"]
