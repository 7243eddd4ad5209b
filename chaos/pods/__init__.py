"""The site of pods: elasticd as a Kubernetes cluster has it, and faults of pods and kubelets.

The cluster is one whose nodes all are this machine (`make kube-up`). That is what lets the same
rules judge: all ranks write into one file, and CLOCK_BOOTTIME is one clock for all of them, for the
runner too. It is not believed but looked up: a container whose processes this kernel does not show
runs elsewhere, and such a cluster is refused, as nobody may compare the clocks of two machines.

A process is (node, pod, pid): in pods pids repeat. Its pod alone is not enough, as a container that
was started again has the same name and the same pids, so a pod's name goes with the moment at which
its container's first process began, as its own /proc and ours say alike.

`agent_pod` and `container` read what the API server and /proc say; `node` is an agent's pod in life
after life, `cluster` asks the API server, `injection` brings faults about, `site` is the port.
"""
