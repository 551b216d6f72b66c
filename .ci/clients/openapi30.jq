# Converts the document from OpenAPI 3.1 to 3.0, for generators that support only 3.0.
def lower:
  if type == "array" then map(lower)
  elif type != "object" then .
  else with_entries(.value |= lower)
    | if has("const") then .enum = [.const] | del(.const) else . end
    | if (.type | type) == "array" then .type = (.type - ["null"])[0] | .nullable = true else . end
    | if (.anyOf | type) == "array" and any(.anyOf[]; .type == "null") then .allOf = (.anyOf | map(select(.type != "null"))) | .nullable = true | del(.anyOf) else . end
    | del(.propertyNames)
    | if has("$ref") then {"$ref"} else . end
  end;
.openapi = "3.0.3" | del(.jsonSchemaDialect) | .paths |= lower | .components |= lower
