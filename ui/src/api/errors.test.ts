import { describe, expect, test } from "vitest";
import { errorFromAnswer } from "./errors";

describe("an error answer", () => {
  test("shows the server's message whole", () => {
    const body = JSON.stringify({
      error: { code: "not_found", message: "No node n-1. It may have been removed.", type: "node_error" },
    });
    const error = errorFromAnswer(404, "Not Found", body);
    expect(error.message).toBe("No node n-1. It may have been removed.");
    expect([error.status, error.code]).toEqual([404, "not_found"]);
  });

  test("may be the older form with a bare string", () => {
    expect(errorFromAnswer(503, "", '{"error":"distributed mode not enabled"}').message).toBe(
      "distributed mode not enabled",
    );
  });

  test.each(["<html>502 Bad Gateway</html>", "", "null", "[]", '{"error":{}}', '{"error":""}'])(
    "from something that is not Corral (%j) still names the status",
    (body) => {
      expect(errorFromAnswer(502, "Bad Gateway", body).message).toContain("502 Bad Gateway");
    },
  );

  test("is transient for server errors, not for request errors", () => {
    expect(errorFromAnswer(503, "", "").isTransient).toBe(true);
    expect(errorFromAnswer(429, "", "").isTransient).toBe(true);
    expect(errorFromAnswer(403, "", "").isTransient).toBe(false);
  });
});
