#!/usr/bin/python3
"""check_kubernetes.py FILE - checks that the example is consistent, and provides all that lib/launch expects of an indexed Job

Called by check_kubernetes.sh. Prints one line per failed check, with exit status 1.
"""
import sys

import yaml


def faults(documents):
    kinds = {d["kind"]: d for d in documents}
    service, job = kinds["Service"], kinds["Job"]
    spec = job["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    env = {e["name"]: e for e in container["env"]}
    secret = env.get("TUTTI_SECRET", {}).get("valueFrom", {}).get("secretKeyRef", {})
    checks = {
        "a Service (v1) and a Job (batch/v1), nothing else":
            len(documents) == 2 and service["apiVersion"] == "v1" and job["apiVersion"] == "batch/v1",
        "the Job is indexed, so that JOB_COMPLETION_INDEX is set": spec["completionMode"] == "Indexed",
        "all ranks run at once": spec["parallelism"] == spec["completions"],
        "TUTTI_NRANKS is the number of completions, as text":
            env["TUTTI_NRANKS"].get("value") == str(spec["completions"]),
        "a failed rank is never restarted alone": spec["backoffLimit"] == 0 and pod["restartPolicy"] == "Never",
        "the headless service names the pods":
            pod["subdomain"] == service["metadata"]["name"] and service["spec"]["clusterIP"] == "None",
        "the service names pods before they are ready": service["spec"]["publishNotReadyAddresses"] is True,
        "the service selects the pods":
            service["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items(),
        "the secret comes from a Secret": bool(secret.get("name")) and bool(secret.get("key")),
        "names are DNS labels": all(d["metadata"]["name"].replace("-", "a").isalnum() for d in documents),
        "image and command are strings": isinstance(container["image"], str)
            and all(isinstance(word, str) for word in container["command"]),
    }
    return [claim for claim, good in checks.items() if not good]


with open(sys.argv[1], encoding="utf-8") as text:
    wrong = faults(list(yaml.safe_load_all(text)))
print("\n".join(wrong) if wrong else "consistent")
sys.exit(bool(wrong))
