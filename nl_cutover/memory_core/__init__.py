"""The reference Memory Core: what the real server answers on the wire, case by case (neo#16202)."""
