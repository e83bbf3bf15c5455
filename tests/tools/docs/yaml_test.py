"""The YAML in the pages can be parsed, and the parts of the Kubernetes example fit each other. Nothing runs it."""
import re
import unittest

from pages import Page, names_in, pages

try:
    import yaml
except ImportError:
    raise SystemExit(77)  # skipped: scripts/deps.sh --tests installs python3-yaml


def documents(page):
    for line, language, lines in page.blocks:
        if language == "yaml":
            yield line, list(yaml.safe_load_all("\n".join(lines)))


class Yaml(unittest.TestCase):
    def test_every_block_is_yaml(self):
        seen = 0
        for page in pages():
            for line, found in documents(page):
                with self.subTest(where=f"{page.name}:{line}"):
                    self.assertTrue(all(isinstance(each, dict) for each in found))
                    seen += 1
        self.assertGreater(seen, 0, "no block of YAML is found in the pages")

    def test_kubernetes_parts_fit_each_other(self):
        blocks = [found for _, found in documents(Page("docs/how-to/run-on-a-cluster.md"))]
        kinds = {each["kind"]: each for found in blocks for each in found}
        service, job = kinds["Service"], kinds["Job"]
        pod = job["spec"]["template"]["spec"]
        container, = pod["containers"]
        self.assertEqual(service["spec"]["clusterIP"], "None")  # headless
        self.assertEqual(service["spec"]["selector"], {"job-name": job["metadata"]["name"]})
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        self.assertEqual(job["spec"]["completionMode"], "Indexed")
        environment = {each["name"]: each for each in container["env"]}
        ranks = environment["WEFT_WORLD_SIZE"]["value"]
        self.assertEqual(ranks, str(job["spec"]["completions"]))
        self.assertEqual(job["spec"]["completions"], job["spec"]["parallelism"])  # all ranks at once
        host = environment["WEFT_ROOT"]["value"].partition(":")[0]
        self.assertEqual(host, f"{job['metadata']['name']}-0.{service['metadata']['name']}")
        self.assertIn("WEFT_RANK=$JOB_COMPLETION_INDEX ", container["command"][-1])
        variables = set(environment) | set(re.findall(r"\bWEFT_\w+", container["command"][-1]))
        self.assertLessEqual(variables, names_in("src/weft/"))


if __name__ == "__main__":
    unittest.main()
