import type { Node } from "@/api/types";
import { IconButton } from "@/components/Button";
import { Menu, MenuItem } from "@/components/Menu";
import { ACTION_LOOKS, useNodeAction } from "./actions";
import { actionsFor } from "./status";

export function RowMenu({ node }: { node: Node }) {
  const startAction = useNodeAction();
  return (
    <Menu trigger={<IconButton icon="more" label={`Actions for ${node.name}`} />}>
      {actionsFor(node).map((action) =>
        // Approve has a separate button beside the menu.
        action === "approve" ? null : (
          <MenuItem
            key={action}
            icon={ACTION_LOOKS[action].icon}
            danger={action === "remove"}
            onSelect={() => startAction(action, node)}
          >
            {ACTION_LOOKS[action].word}
          </MenuItem>
        ),
      )}
    </Menu>
  );
}
